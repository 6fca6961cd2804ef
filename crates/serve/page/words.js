// Every text of the page, from one catalog per language.
import { Sayings, filled } from '/sayings.js';

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

// In English a sentence is quoted, unless the page has a better one; for another language there is a text for each.
const sentencesIn = (name) => (name === 'en' ? {} : fetched(`sentences-${name}`));

export async function loadWords(name = preferred()) {
  const [own, patterns, sentences] = await Promise.all([fetched(name), fetched('said'), sentencesIn(name)]);
  words = { ...sentences, ...own };
  sayings = new Sayings({ ...patterns, ...Object.fromEntries(Object.keys(sentences).map((sentence) => [sentence, sentence])) });
  language = name;
  document.documentElement.lang = name;
}

export function chooseLanguage(name) {
  localStorage.setItem('language', name);
  return loadWords(name);
}

export function t(key, values = {}) {
  return filled(words[key] ?? key, values, language);
}

export const has = (key) => key in words;

// What the planner or the server says, and which of their sentences it is.
export const said = (text) => (typeof text === 'string' ? sayings.translated(text, t) : text);
export const saying = (text) => sayings.recognized(text)?.key;
