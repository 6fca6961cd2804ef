// Commands for a POSIX shell, made of words that come from anywhere: a word stays one word and is never run.

// What no shell reads anything into stays as it is.
const PLAIN = /^[A-Za-z0-9_%+,.:@/-]+$/;

export const quoted = (word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

// A line of its own that the text does not have: it ends where we say.
function delimiter(text) {
  const lines = new Set(text.split('\n'));
  let word = 'RECIPE';
  for (let more = 2; lines.has(word); more += 1) word = `RECIPE_${more}`;
  return word;
}

// The text as a file; a name with a dash in front is no option.
const written = (text, file) => { const end = delimiter(text); return `cat > ${quoted(file)} <<'${end}'\n${text}\n${end}\n`; };

// The recipe as a file and what to do with it, `train` or `plan`, ready to paste.
export function recipeCommand({ verb, text, name, device }) {
  const file = `${name.startsWith('-') ? './' : ''}${name}.toml`;
  return `${written(text.trimEnd(), file)}plimsoll ${verb} ${[file, '--device', device].map(quoted).join(' ')}\n`;
}
