import assert from 'node:assert/strict'
import { test } from 'node:test'
import { match, type KeyBinding } from '../src/base/keys'
import { backoffMs, EVENTS_MAX, mergeEvents } from '../src/api/stream'
import { niceSplits } from '../src/kit/chart'
import { nextSort, parseSort, sortRows, sortText } from '../src/kit/order'
import { joinPoints, knownRange, stackUp } from '../src/kit/series'
import { sparkPaths } from '../src/kit/spark'
import { shares } from '../src/kit/stack'
import { sight } from '../src/kit/table'

test('rows without a value come last in both directions', () => {
  const rows = [{ n: 2 }, { n: null }, { n: 10 }, { n: 1 }]
  assert.deepEqual(sortRows(rows, (r) => r.n, true).map((r) => r.n), [10, 2, 1, null])
  assert.deepEqual(sortRows(rows, (r) => r.n, false).map((r) => r.n), [1, 2, 10, null])
})

test('equal rows keep their order', () => {
  const rows = Array.from({ length: 100 }, (_, i) => ({ id: i, n: i % 2 }))
  const sorted = sortRows(rows, (r) => r.n, true)
  assert.deepEqual(sorted.slice(0, 3).map((r) => r.id), [1, 3, 5])
})

test('a sort is a word of the address', () => {
  assert.deepEqual(parseSort('-rss'), { id: 'rss', down: true })
  assert.deepEqual(parseSort('+pid'), { id: 'pid', down: false })
  assert.equal(parseSort(''), null)
  assert.equal(sortText(nextSort(parseSort('-rss'), 'rss', true)), '+rss')
  assert.equal(sortText(nextSort(parseSort('-rss'), 'user', false)), '+user')
})

test('a stack adds up, and unknown points stay unknown', () => {
  assert.deepEqual(stackUp([[1, null], [2, null], [3, null]]), [[6, null], [5, null], [3, null]])
  assert.deepEqual(stackUp([[1], [null], [3]]), [[4], [3], [3]])
})

test('shares of a bar never exceed it', () => {
  const part = (id: string, value: number | null) => ({ id, name: id, value, color: '' })
  assert.deepEqual(shares([part('a', 25), part('b', null)], 100), [25, 0])
  assert.deepEqual(shares([part('a', 75), part('b', 75)], 100), [50, 50])
  assert.deepEqual(shares([part('a', 0)], 0), [0])
})

test('live points follow those of history without doubling any', () => {
  const base = { t: [1, 2, 3], values: { a: [1, 2, 3] } }
  const more = { t: [2, 3, 4], values: { a: [20, 30, 4], b: [0, 0, 7] } }
  assert.deepEqual(joinPoints(base, more, 100), { t: [1, 2, 3, 4], values: { a: [1, 2, 3, 4], b: [null, null, null, 7] } })
  assert.deepEqual(joinPoints(base, more, 1).t, [3, 4])
  // A step that is not over yet makes no gap.
  const open = { t: [1, 2, 3], values: { a: [1, 2, null] } }
  assert.deepEqual(joinPoints(open, more, 100), { t: [1, 2, 3, 4], values: { a: [1, 2, 30, 4], b: [null, null, 0, 7] } })
  assert.deepEqual(joinPoints({ t: [], values: {} }, more, 100).values['a'], [20, 30, 4])
})

test('a spark line breaks where nothing is known', () => {
  const { line } = sparkPaths([1, 2, null, 3])
  assert.equal(line.match(/M/g)?.length, 2)
  assert.equal(sparkPaths([]).line, '')
  assert.ok(!sparkPaths([5, 5, 5]).line.includes('NaN'))
})

test('axes have round values', () => {
  assert.deepEqual(niceSplits(0, 10, 4), [0, 2.5, 5, 7.5, 10])
  assert.deepEqual(niceSplits(0, 24e9, 4), [0, 10e9, 20e9])
  assert.deepEqual(niceSplits(0, 0, 4), [0])
})

const binding = (keys: string): KeyBinding => ({ keys, help: '', run: () => {} })

test('two keys make a sequence, and the later binding wins', () => {
  const list = [binding('j'), binding('g o'), binding('j')]
  assert.equal(match(list, '', 'g'), 'g')
  assert.equal(match(list, 'g', 'o'), list[1])
  assert.equal(match(list, 'g', 'j'), list[2])
  assert.equal(match(list, '', 'x'), '')
})

test('events come once, in order, and only the latest stay', () => {
  const event = (seq: number) => ({ seq, time: '', kind: 'came', message: String(seq) })
  assert.deepEqual(mergeEvents([event(1), event(3)], [event(2), event(3)]).map((e) => e.seq), [1, 2, 3])
  const many = Array.from({ length: EVENTS_MAX + 5 }, (_, i) => event(i))
  assert.equal(mergeEvents([], many)[0]?.seq, 5)
})

test('tries to reconnect come less and less often, but within half a minute', () => {
  assert.ok(backoffMs(1, 0.5) <= 500)
  assert.ok(backoffMs(4, 0.5) > backoffMs(3, 0.5))
  assert.ok(backoffMs(50, 1) <= 37_500)
})

test('only rows in sight are drawn, and never beyond the end', () => {
  const [first, end] = sight(28_000, 560, 28, 10_000)
  assert.ok(first <= 1000 && first > 980 && end >= 1020 && end < 1040)
  assert.deepEqual(sight(0, 560, 28, 3), [0, 3])
  assert.deepEqual(sight(0, 560, 28, 0), [0, 0])
  // Fewer rows than before: the old scroll position is past the end.
  const [from, to] = sight(28_000, 560, 28, 10)
  assert.ok(from < 10 && to === 10)
})

test('a chart of a young history begins where it does', () => {
  const t = [0, 100, 200, 300, 400]
  assert.deepEqual(knownRange({ t, values: { a: [null, null, 5, 5, 5] } }, 400), [200, 400])
  assert.deepEqual(knownRange({ t, values: { a: [1, 1, 1, 1, 1] } }, 150), [250, 400])
  assert.deepEqual(knownRange({ t, values: { a: [null, null, null, null, 1] } }, 400), [340, 400])
  assert.equal(knownRange({ t: [], values: {} }, 10), undefined)
})
