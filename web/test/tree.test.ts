import assert from 'node:assert/strict'
import { test } from 'node:test'
import { flatten } from '../src/views/tree'

interface Node {
  path: string
  parent: string | null
  n: number
}

const rows: Node[] = [
  { path: '/', parent: null, n: 9 },
  { path: '/a', parent: '/', n: 1 },
  { path: '/b', parent: '/', n: 5 },
  { path: '/b/x', parent: '/b', n: 2 },
  { path: '/b/y', parent: '/b', n: 3 },
]

const lines = (list: Node[], down = true, closed: string[] = []): string[] =>
  flatten(list, { path: (r) => r.path, parent: (r) => r.parent, value: (r) => r.n, down, closed: new Set(closed) }).map(
    (line) => `${line.depth}${line.path}`,
  )

test('children follow their parent, siblings are sorted', () => {
  assert.deepEqual(lines(rows), ['0/', '1/b', '2/b/y', '2/b/x', '1/a'])
  assert.deepEqual(lines(rows, false), ['0/', '1/a', '1/b', '2/b/x', '2/b/y'])
})

test('a closed branch stays, its children go', () => {
  assert.deepEqual(lines(rows, true, ['/b']), ['0/', '1/b', '1/a'])
})

test('what a filter tore from its parent is a root', () => {
  assert.deepEqual(lines(rows.slice(3)), ['0/b/y', '0/b/x'])
  assert.deepEqual(lines([{ path: '/', parent: '/', n: 1 }]), ['0/'])
})
