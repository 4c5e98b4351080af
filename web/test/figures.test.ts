import assert from 'node:assert/strict'
import { test } from 'node:test'
import { figureGroups, figureText, lossesOf } from '../src/views/figures'

test('the last word of a name tells what it is', () => {
  assert.equal(figureText('cache_size', 25_500_000), '25.5 MB')
  assert.equal(figureText('lag_p99', 0.0032), '3.2 ms')
  assert.equal(figureText('uptime', 252), '4m12s')
  assert.equal(figureText('rss', 1000), '1.0 kB')
  assert.equal(figureText('cpu_percent', 1.25), '1.3 %')
  assert.equal(figureText('cgroup_limit', 2_000_000), '2.0 MB')
  assert.equal(figureText('pressure', 1.25), '1.3 %')
  assert.equal(figureText('requests', 12345), '12,345')
  assert.equal(figureText('pid', 12345), '12345')
  assert.equal(figureText('whatever', null), '-')
})

test('objects become groups, whatever their depth', () => {
  const groups = figureGroups({ version: '1', loop: { lag: 5, turns: { n: 2 } }, list: [1] }, 'memoird')
  assert.deepEqual(
    groups.map((g) => [g.name, g.figures.map((f) => f.name)]),
    [
      ['memoird', ['version']],
      ['loop', ['lag']],
      ['loop: turns', ['n']],
    ],
  )
})

test('losses are what should be zero and is not', () => {
  const groups = figureGroups({ http: { requests: 5, events_lost: 2 }, books: { problems: { bad: 0 } } }, '')
  const losses = lossesOf(groups)
  assert.equal(losses.counted, 2)
  assert.deepEqual(losses.some.map((f) => f.name), ['http: events lost'])
})
