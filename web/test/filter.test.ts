import assert from 'node:assert/strict'
import { test } from 'node:test'
import { accept, both, complete, equals, meant } from '../src/views/filter'

const columns = ['rss', 'rank', 'program', 'peak_rss', 'user'].map((name) => ({ name, kind: 'text', help: '' }))
const names = (text: string): string[] | undefined => complete(text, text.length, columns)?.options.map((o) => o.name)

test('columns are offered where a column may stand', () => {
  assert.deepEqual(names('r'), ['rss', 'rank', 'program', 'peak_rss', 'user'])
  assert.deepEqual(names('rs'), ['rss', 'peak_rss'])
  assert.deepEqual(names('user=ann and (not pro'), ['program'])
  assert.deepEqual(names('rss>1GB, us'), ['user'])
})

test('nothing is offered for values, in quotes, or when the word is whole', () => {
  assert.equal(names('user=r'), undefined)
  assert.equal(names('program ~ "a and r'), undefined)
  assert.equal(names('user'), undefined)
  assert.equal(names('zzz'), undefined)
})

test('a taken completion replaces the whole word', () => {
  const text = 'user=ann and rsx>1'
  const found = complete(text, 'user=ann and rs'.length, columns)!
  assert.deepEqual(accept(text, found, 'rss'), { text: 'user=ann and rss>1', caret: 'user=ann and rss'.length })
})

test('values are quoted so that the language reads them back', () => {
  assert.equal(equals('user', 'ann'), 'user=ann')
  assert.equal(equals('cgroup', '/a "b"\\'), 'cgroup="/a \\"b\\"\\\\"')
  assert.equal(equals('job', null), 'job=none')
  assert.equal(equals('job', 'none'), 'job="none"')
  assert.equal(equals('pid', 7), 'pid=7')
  assert.equal(both('a=1 or b=2', 'c=3'), 'a=1 or b=2, c=3')
  assert.equal(both(' ', 'c=3'), 'c=3')
})

test('a mere word is a name, a mere number a process', () => {
  assert.equal(meant('shop', columns), 'program~shop')
  assert.equal(meant('data-loader.py', columns), 'program~data-loader.py')
  assert.equal(meant('4711', columns), 'pid=4711')
  for (const text of ['', 'rss', 'rss>1GB', 'program=shop', 'a b', '"x"']) assert.equal(meant(text, columns), text)
})
