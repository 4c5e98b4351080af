import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Explain } from '../src/api/schema'
import { explainNames, explainParts, shortName } from '../src/views/process_explain'

const part = (kind: string, name: string, bytes: number, folded = 0): Explain['parts'][number] =>
  ({ kind, name, bytes, folded, estimated: false }) as Explain['parts'][number]

test('kinds without memory have no part, and the rest is marked', () => {
  const parts = explainParts({ heap: 60, slack: 0, rest: 40 })
  assert.deepEqual(
    parts.map((p) => [p.id, p.value, p.rest]),
    [
      ['heap', 60, false],
      ['rest', 40, true],
    ],
  )
})

test('call sites stand for the heap where they are known, and all parts sum to the resident memory', () => {
  const parts = [part('heap', 'heap of brk', 600), part('runtime', 'V8 heap', 300), part('file', 'other files', 95, 3), part('file', 'a', 5)]
  const names = (answer: Pick<Explain, 'sites' | 'others'>): [string, number, boolean][] => {
    const all = explainNames({ parts, rss: 1000, ...answer })
    assert.equal(
      all.reduce((sum, n) => sum + n.bytes, 0),
      1000,
    )
    return all.map((n) => [n.name, n.bytes, n.estimated])
  }
  assert.deepEqual(names({ sites: null }), [
    ['heap of brk', 600, false],
    ['V8 heap', 300, false],
    ['other files', 95, false],
    ['1 smaller part', 5, false],
  ])
  const sites = [
    { site: 'a.c:1 f', bytes: 400, live: 410, blocks: 1 },
    { site: 'a.c:2 g', bytes: 7, live: 7, blocks: 1 },
  ]
  assert.deepEqual(names({ sites, others: { sites: 1, bytes: 193 } }), [
    ['a.c:1 f', 400, true],
    ['V8 heap', 300, false],
    ['1 more call site', 193, true],
    ['other files', 95, false],
    ['2 smaller parts', 12, true],
  ])
})

test('of files the last part of the path is shown', () => {
  assert.equal(shortName({ kind: 'file', name: '/usr/lib/libc.so.6' }), 'libc.so.6')
  assert.equal(shortName({ kind: 'file', name: 'other files' }), 'other files')
  assert.equal(shortName({ kind: 'heap', name: '/src/a.c:1 f' }), '/src/a.c:1 f')
})
