// The frame: navigation by the address, language and theme, what to do when the server is away.
import { Failure, get, onConnection, post, server } from '/api.js';
import { announce, complaint, h, replace } from '/dom.js';
import { redraw } from '/charts.js';
import { route } from '/route.js';
import { chooseLanguage, language, loadWords, t } from '/words.js';

const PAGES = { runs: 'page-runs', new: 'page-new', run: 'page-run', compare: 'page-compare', queue: 'page-queue', devices: 'page-devices', studies: 'page-studies', doctor: 'page-doctor', docs: 'page-docs' };
const SHOWN = ['runs', 'new', 'queue', 'compare', 'studies', 'devices', 'doctor'];
const main = document.getElementById('main');
const NOTHING = () => {};
// What is shown, as the page's `open` gave it: a function that leaves it; its `keep`, where it has one, says what outlives it.
let page = NOTHING;
let shownAt = '';
// What the last page kept, for as long as its address is the one that is asked for.
let held = {};
// Only the page that was asked for last is shown; one that was left while it loaded is closed when it comes.
let turn = 0;
let first = true;
let isSigningIn = false;
// Whether there is no page because the server was away.
let isMissed = false;

const address = () => route(location.hash, PAGES);

function leave() {
  turn += 1;
  if (page.keep) held = { address: shownAt, kept: page.keep() };
  page();
  page = NOTHING;
  isMissed = false;
}

const script = (name) => import(`/${PAGES[name]}.js`).catch(() => { throw new Failure({ error: t('error.away') }, 0); });

async function show() {
  const { name, rest, query } = address();
  frame(name);
  if (isSigningIn) return;
  leave();
  if (held.address !== location.hash) held = {};
  const mine = turn;
  const wanted = location.hash;
  try {
    const { open } = await script(name);
    if (mine !== turn) return;
    const place = h('div', { class: 'page' });
    replace(main, place);
    const opened = (await open(place, rest, query, held.kept)) || NOTHING;
    if (mine !== turn) { opened(); return; }
    [page, shownAt] = [opened, wanted];
  } catch (error) {
    if (mine !== turn) return;
    isMissed = error.status === 0;
    replace(main, complaint(error));
  }
  document.title = `${main.querySelector('h1')?.textContent || t(`nav.${name}`)} · plimsoll`;
  if (!first) { main.focus({ preventScroll: true }); scrollTo(0, 0); announce(document.title); }
  first = false;
}

function frame(current) {
  const link = (name) => h('a', { href: `#/${name}`, 'aria-current': name === current || (name === 'runs' && current === 'run') ? 'page' : undefined }, t(`nav.${name}`));
  const nav = document.getElementById('nav');
  nav.setAttribute('aria-label', t('nav.label'));
  replace(nav, SHOWN.map(link));
  document.getElementById('skip').textContent = t('nav.skip');
  replace(document.getElementById('foot'), h('a', { href: '#/docs' }, t('docs.title')), server.version ? h('span', {}, `plimsoll ${server.version}`) : '');
  replace(document.getElementById('tools'), themeButton(), languageButton());
}

function themeButton() {
  const dark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  const button = h('button', { class: 'plain', type: 'button', title: t('theme.switch'), 'aria-label': t('theme.switch'), onclick: () => {
    document.documentElement.dataset.theme = dark() ? 'light' : 'dark';
    localStorage.setItem('theme', document.documentElement.dataset.theme);
    button.textContent = dark() ? '☀' : '☾';
    redraw();
  } }, dark() ? '☀' : '☾');
  return button;
}

function languageButton() {
  const other = language === 'en' ? 'ru' : 'en';
  return h('button', { class: 'plain', type: 'button', lang: other, onclick: async () => { await chooseLanguage(other); if (isSigningIn) askToken(main.querySelector('input').value); await show(); } }, other === 'ru' ? 'Русский' : 'English');
}

function connected(isReached) {
  const place = document.getElementById('banner');
  if (isReached !== (place.childElementCount === 0)) replace(place, isReached ? [] : h('div', {}, t('error.away')));
  if (isReached && isMissed) show();
}

// Where a token is asked for and the browser has none.
function signIn() {
  if (isSigningIn) return;
  leave();
  isSigningIn = true;
  askToken();
}

function askToken(typed = '') {
  const field = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true, value: typed });
  const wrong = h('p', { class: 'hint', role: 'alert' });
  const form = h('form', { class: 'panel login', onsubmit: async (event) => {
    event.preventDefault();
    try { await post('/sign-in', { token: field.value }); isSigningIn = false; await start(); } catch (error) { wrong.textContent = error.message; field.focus(); }
  } }, h('h1', {}, t('login.title')), h('p', { class: 'lead' }, t('login.lead')), h('label', { class: 'field' }, t('login.token'), field), wrong, h('button', { class: 'main' }, t('login.enter')));
  replace(main, form);
  field.focus();
}

async function start() {
  Object.assign(server, await get('/server'));
  await show();
  // What is there already can be gone to while the server is away.
  Object.keys(PAGES).forEach((name) => script(name).catch(NOTHING));
}

// A server that is away now may come back: ask until it does.
async function begin() {
  await loadWords();
  frame(address().name);
  for (let wait = 500; ; wait = Math.min(2 * wait, 5000)) {
    try { await start(); return; } catch (error) {
      if (error.status) { if (error.status !== 401) replace(main, complaint(error)); return; }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

const theme = localStorage.getItem('theme');
if (theme) document.documentElement.dataset.theme = theme;
onConnection(connected);
// To the content, not to another page.
document.getElementById('skip').addEventListener('click', (event) => { event.preventDefault(); main.focus(); });
window.addEventListener('hashchange', show);
window.addEventListener('sign-in', signIn);
begin();
