// Every text of the page, from one catalog per language.
const LANGUAGES = ['en', 'ru'];
let words = {};
export let language = 'en';

function preferred() {
  const kept = localStorage.getItem('language');
  if (LANGUAGES.includes(kept)) return kept;
  return (navigator.languages || []).some((name) => name.toLowerCase().startsWith('ru')) ? 'ru' : 'en';
}

export async function loadWords(name = preferred()) {
  const response = await fetch(`/${name}.json`);
  words = await response.json();
  language = name;
  document.documentElement.lang = name;
}

export function chooseLanguage(name) {
  localStorage.setItem('language', name);
  return loadWords(name);
}

export function t(key, values = {}) {
  const text = words[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
}

export const has = (key) => key in words;
