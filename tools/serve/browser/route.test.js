// Addresses of the page, as people type and other programs cut them.
import assert from 'node:assert/strict';
import test from 'node:test';
import { route } from '../../../crates/serve/page/route.js';

const PAGES = { runs: 'page-runs', run: 'page-run', compare: 'page-compare' };
const told = (hash) => { const { name, rest, query } = route(hash, PAGES); return [name, ...rest, ...query.getAll('run')]; };

test('an address leads to its page', () => {
  assert.deepEqual(told(''), ['runs']);
  assert.deepEqual(told('#/'), ['runs']);
  assert.deepEqual(told('#/run/a%20b-1'), ['run', 'a b-1']);
  assert.deepEqual(told('#/compare?run=a&run=b%3Fc'), ['compare', 'a', 'b?c']);
});

test('what is not encoded as it should be stands for itself', () => {
  assert.deepEqual(told('#/run/100%'), ['run', '100%']);
  assert.deepEqual(told('#/run/%E0%A4%A/x'), ['run', '%E0%A4%A', 'x']);
  assert.deepEqual(told('#/compare?run=100%&run=%zz'), ['compare', '100%', '%zz']);
});

test('what is no page is the first one', () => {
  for (const hash of ['#/nowhere', '#/constructor', '#/__proto__', '#////', '#/run%']) assert.equal(route(hash, PAGES).name, 'runs', hash);
});
