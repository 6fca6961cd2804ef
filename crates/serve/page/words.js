// Every text of the page, from one catalog per language.
import { Sayings } from '/sayings.js';

const LANGUAGES = ['en', 'ru'];
let words = {};
let sayings = null;
export let language = 'en';

function preferred() {
  const kept = localStorage.getItem('language');
  if (LANGUAGES.includes(kept)) return kept;
  return (navigator.languages || []).some((name) => name.toLowerCase().startsWith('ru')) ? 'ru' : 'en';
}

const fetched = async (name) => (await fetch(`/${name}.json`)).json();

export async function loadWords(name = preferred()) {
  [words, sayings] = await Promise.all([fetched(name), sayings ?? fetched('said').then((patterns) => new Sayings(patterns))]);
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

// What the planner says, and which of its sentences it is.
export const said = (text) => (typeof text === 'string' ? sayings.translated(text, t) : text);
export const saying = (text) => sayings.recognized(text)?.key;
