// The API, read from its own document.
import { get } from '/api.js';
import { h, replace } from '/dom.js';
import { t } from '/words.js';

export async function open(main) {
  const document = await get('/openapi.json');
  const operations = Object.entries(document.paths).flatMap(([path, item]) => Object.entries(item).map(([method, operation]) => ({ path, method, operation })));
  const entry = ({ path, method, operation }) => h('details', {}, h('summary', {}, h('code', {}, `${method.toUpperCase()} /api/v1${path}`), ` ${operation.summary || ''}`), h('p', {}, operation.description || ''), h('pre', { class: 'log' }, JSON.stringify({ parameters: operation.parameters, requestBody: operation.requestBody, responses: operation.responses }, null, 2)));
  replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, t('docs.title')), h('p', { class: 'lead' }, t('docs.lead'), ' ', h('a', { href: '/api/v1/openapi.json' }, 'openapi.json')))), h('section', { class: 'panel' }, operations.map(entry)), h('section', { class: 'panel' }, h('details', {}, h('summary', {}, t('docs.types')), h('pre', { class: 'log' }, JSON.stringify(document.components.schemas, null, 2)))));
}
