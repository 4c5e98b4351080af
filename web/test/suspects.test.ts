import assert from 'node:assert/strict'
import { test } from 'node:test'
import { siteName, suspectsOf } from '../src/views/suspect_model'

test('a place is called by its function in short', () => {
  const whole = 'void cache::Table<std::string, int>::insert<int>(int&&)'
  assert.equal(siteName({ text: 'cache.cpp:41 cache::Table<…>::insert<…>', function: whole }), 'cache::Table<…>::insert<…>')
  assert.equal(siteName({ text: 'train.py:41 in load', function: 'load' }), 'load')
  assert.equal(siteName({ text: 'Cache::load', function: 'Cache::load(int)' }), 'Cache::load')
  assert.equal(siteName({ text: 'libfoo.so+0x12ab', function: null }), 'libfoo.so+0x12ab')
  assert.equal(siteName(null), 'unknown place')
})

test('what a line calls to get its memory comes along', () => {
  const answer = { time: '2026-01-01T00:00:00Z', rows: [{ pid: 7, site: 'a.c:5 load', function: 'load', via: 'xmalloc', stack: ['main', 'a.c:5 load', 'xmalloc'] }] }
  const suspects = suspectsOf(answer as never)!.suspects
  assert.equal(suspects[0]!.site?.via, 'xmalloc')
  assert.deepEqual(suspects[0]!.stack, ['xmalloc', 'a.c:5 load', 'main'])
})
