// The frame: navigation by the address, language and theme, what to do when the server is away.
import { get, onConnection, post, server } from '/api.js';
import { announce, h, replace } from '/dom.js';
import { redraw } from '/charts.js';
import { route } from '/route.js';
import { chooseLanguage, language, loadWords, t } from '/words.js';

const PAGES = { runs: 'page-runs', new: 'page-new', run: 'page-run', compare: 'page-compare', queue: 'page-queue', devices: 'page-devices', studies: 'page-studies', doctor: 'page-doctor', docs: 'page-docs' };
const SHOWN = ['runs', 'new', 'queue', 'compare', 'studies', 'devices', 'doctor'];
const main = document.getElementById('main');
let leave = () => {};
let first = true;

const address = () => route(location.hash, PAGES);

async function show() {
  const { name, rest, query } = address();
  leave();
  leave = () => {};
  frame(name);
  const wanted = location.hash;
  try {
    const page = await import(`/${PAGES[name]}.js`);
    if (wanted !== location.hash) return;
    replace(main);
    leave = (await page.open(main, rest, query)) || (() => {});
  } catch (error) {
    if (error.status !== 401) replace(main, h('div', { class: 'notice bad', role: 'alert' }, error.message, error.hint ? `\n${error.hint}` : ''));
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
  return h('button', { class: 'plain', type: 'button', lang: other, onclick: async () => { await chooseLanguage(other); show(); } }, other === 'ru' ? 'Русский' : 'English');
}

function banner(reached) {
  const place = document.getElementById('banner');
  if (reached === (place.childElementCount === 0)) return;
  replace(place, reached ? [] : h('div', {}, t('error.away')));
}

// Where a token is asked for and the browser has none.
function signIn() {
  leave();
  const field = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true });
  const wrong = h('p', { class: 'hint', role: 'alert' });
  const form = h('form', { class: 'panel login', onsubmit: async (event) => {
    event.preventDefault();
    try { await post('/sign-in', { token: field.value }); await start(); } catch (error) { wrong.textContent = error.message; field.focus(); }
  } }, h('h1', {}, t('login.title')), h('p', { class: 'lead' }, t('login.lead')), h('label', { class: 'field' }, t('login.token'), field), wrong, h('button', { class: 'main' }, t('login.enter')));
  replace(main, form);
  field.focus();
}

async function start() {
  Object.assign(server, await get('/server'));
  await show();
}

// A server that is away now may come back: ask until it does.
async function begin() {
  await loadWords();
  frame(address().name);
  for (let wait = 500; ; wait = Math.min(2 * wait, 5000)) {
    try { await start(); return; } catch (error) {
      if (error.status) { if (error.status !== 401) replace(main, h('div', { class: 'notice bad', role: 'alert' }, error.message)); return; }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

const kept = localStorage.getItem('theme');
if (kept) document.documentElement.dataset.theme = kept;
onConnection(banner);
window.addEventListener('hashchange', show);
window.addEventListener('sign-in', signIn);
begin();
