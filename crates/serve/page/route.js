// The page's address, `#/name/part?key=value`, as people and other programs write it.

// A part that is not encoded as it should be stands for itself.
export function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

export function route(hash, pages) {
  const [, path, query = ''] = hash.match(/^#?\/?([^?]*)\??(.*)$/s);
  const [name, ...rest] = path.split('/');
  return { name: Object.hasOwn(pages, name) ? name : 'runs', rest: rest.map(decoded), query: new URLSearchParams(query) };
}
