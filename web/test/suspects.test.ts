import assert from 'node:assert/strict'
import { test } from 'node:test'
import { heldSentence, leakCount, siteName, suspectsOf, worstOfEach } from '../src/views/suspect_model'

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

const row = (pid: number, site: string, verdict: string, growth: number, more: object = {}): object => ({
  pid,
  site,
  function: site.split(' ').pop(),
  source_file: '/home/ann/' + site.split(':')[0],
  line: Number(site.split(/[: ]/)[1]),
  verdict,
  growth,
  bytes: growth * 10,
  blocks: 5,
  limit_in: 1000,
  limit: 1e9,
  trend: [
    [1, 1],
    [2, growth],
  ],
  ...more,
})
const told = (...rows: object[]) => suspectsOf({ time: '2026-01-01T00:00:00Z', rows } as never)!.suspects

test('one line is one suspect, through however many places of a library it asks', () => {
  const suspects = told(row(7, 'a.py:5 load', 'leak', 300), row(7, 'a.py:5 load', 'growing', 100), row(7, 'a.py:9 save', 'leak', 50), row(8, 'a.py:5 load', 'leak', 1))
  assert.deepEqual(
    suspects.map((s) => [s.pid, s.site.line, s.places, s.level, s.rate, s.live_bytes, s.live_blocks]),
    [
      [7, 5, 2, 'leak', 400, 4000, 10],
      [7, 9, undefined, 'leak', 50, 500, 5],
      [8, 5, undefined, 'leak', 1, 10, 5],
    ],
  )
  assert.deepEqual(suspects[0]!.series.bytes, [2, 400])
  assert.equal(suspects[0]!.limit?.in_s, 250) // the smallest room, 100 a second for 1000 s, at 400 a second
})

test('a machine with many suspects shows the worst of each process', () => {
  const suspects = told(row(7, 'a.py:5 load', 'leak', 300), row(7, 'a.py:9 save', 'leak', 500), row(8, 'b.java:1 heap', 'growing', 9000))
  assert.deepEqual(
    worstOfEach(suspects).map(({ suspect, more }) => [suspect.pid, suspect.site.line, more]),
    [
      [7, 9, 1],
      [8, 1, 0],
    ],
  )
})

test('what is not known of the blocks is not told', () => {
  assert.match(heldSentence(told(row(7, 'Java heap', 'growing', 300, { blocks: 0 }))[0]!), /^It holds 3.0 kB\.$/)
})

test('leaks are counted by line of code, in the menu and on their screen', () => {
  const answer = (...rows: object[]) => suspectsOf({ time: '2026-01-01T00:00:00Z', rows } as never)
  assert.equal(leakCount(answer(row(7, 'a.py:5 load', 'leak', 300), row(7, 'a.py:5 load', 'leak', 100), row(7, 'a.py:9 save', 'growing', 50))), 1)
  assert.equal(leakCount(answer(row(7, 'a.py:5 load', 'leak', 300), row(8, 'a.py:5 load', 'leak', 100))), 2)
  assert.equal(leakCount(answer(row(7, 'a.py:9 save', 'growing', 50))), 0)
  assert.equal(leakCount(null), 0)
})
