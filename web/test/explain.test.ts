import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Explain } from '../src/api/schema'
import { explainNames, explainParts } from '../src/views/process_explain'

const part = (kind: string, name: string, bytes: number, folded = 0): Explain['parts'][number] =>
  ({ kind, name, bytes, folded }) as Explain['parts'][number]

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

test('call sites stand for the heap where they are known', () => {
  const parts = [part('heap', 'heap of brk', 60), part('runtime', 'V8 heap', 30), part('file', 'other files', 9, 3), part('file', 'a', 1)]
  assert.deepEqual(
    explainNames({ parts, sites: null, rss_bytes: 100 }).map((n) => n.name),
    ['heap of brk', 'V8 heap'],
  )
  const sites = [{ site: 'a.c:1 f', bytes: 20, live_bytes: 20, live_blocks: 1 }]
  assert.deepEqual(
    explainNames({ parts, sites, rss_bytes: 100 }).map((n) => n.name),
    ['V8 heap', 'a.c:1 f'],
  )
})
