import assert from 'node:assert/strict'
import test from 'node:test'
import { treemapHit, treemapTiles, tilePath, type TreemapItem } from '../src/draw/treemap'
import type { ClusterProgram } from '../src/api/schema'
import { addProcesses, missingText, namesOf, nodesOf, share, treeOfPrograms, type Member } from '../src/views/cluster_model'

const member = (node: string, more: Partial<Member> = {}): Member => ({
  node,
  name: node,
  id: `id-${node}`,
  self: false,
  state: 'alive',
  state_age: 1,
  version: '0.1.0',
  heard_age: 1,
  answer_took: 0.001,
  answered_age: 1,
  clock_offset: 0,
  ...more,
})

const program = (name: string, node: string, value: number, processes: number): ClusterProgram => ({
  program: name,
  value,
  processes,
  growth: null,
  nodes_total: 1,
  outliers: 0,
  nodes: [{ node, value, processes, growth: null, growth_steady: null, outlier: null, why: null }],
})

const item = (name: string, value: number, below: TreemapItem[] = []): TreemapItem => ({ key: name, name, value, below })

test('a node that did not answer has no figures, and is not counted as 0', () => {
  const nodes = nodesOf(
    [member('a'), member('b', { state: 'unreachable' }), member('c'), member('d', { state: 'left' })],
    [
      { node: 'a', total: 100, used: 20, available: 80 },
      { node: 'c', total: 100, used: 70, available: 30 },
    ],
  )
  assert.deepEqual(
    nodes.map((n) => [n.member.node, n.used]),
    [
      ['b', null],
      ['c', 70],
      ['a', 20],
    ],
  )
  assert.equal(share(nodes[0]!), -1)
})

test('the map has nodes, programs and processes; what is not shown singly is one tile', () => {
  const tree = addProcesses(
    treeOfPrograms([program('train', 'b', 100, 3), program('sh', 'a', 7, 1)]),
    [
      { node: 'b', program: 'train', pid: 11, rss: 60 },
      { node: 'b', program: 'train', pid: 12, rss: 30 },
      { node: 'a', program: 'sh', pid: 5, rss: 7 },
      { node: 'z', program: 'other', pid: 6, rss: 7 },
    ],
    'rss',
  )
  assert.deepEqual(
    tree.map((n) => [n.key, n.value]),
    [
      ['a', 7],
      ['b', 100],
    ],
  )
  assert.deepEqual(tree[0]!.below[0]!.below, [], 'one process is its program')
  assert.deepEqual(
    tree[1]!.below[0]!.below.map((p) => [p.key, p.value]),
    [
      ['11', 60],
      ['12', 30],
      ['rest', 10],
    ],
  )
})

test('sites are named by their keys', () => {
  const names = namesOf(new Map([['a', 'a.c:1 f']]), [{ key: 'b', site: 'b.c:2 g' }, { key: null, site: 'outside' }, { key: 'c', site: null }])
  assert.deepEqual([...names], [
    ['a', 'a.c:1 f'],
    ['b', 'b.c:2 g'],
  ])
})

test('an answer says which nodes are missing, and why', () => {
  assert.equal(missingText(null), '')
  assert.equal(missingText({ expected: 2, answered: 2, missing: [] }), '')
  assert.equal(
    missingText({ expected: 3, answered: 1, missing: [{ node: 'b' }, { node: 'c', refused: true, why: 'no token' }] }),
    '1 of 3 nodes answered; no answer from b; refused by c (no token)',
  )
})

test('tiles fill the picture by their values, inside what they belong to, without overlap', () => {
  const items = [item('a', 60, [item('x', 40), item('y', 20)]), item('b', 30), item('c', 10), item('none', 0)]
  const tiles = treemapTiles(items, 300, 200)
  const outer = tiles.filter((t) => t.depth === 0)
  assert.deepEqual(outer.map((t) => t.item.name).sort(), ['a', 'b', 'c'])
  for (const t of outer) assert.ok(Math.abs(t.width * t.height - (t.item.value / 100) * 300 * 200) < 1e-6, t.item.name)
  for (const t of tiles) {
    assert.ok(t.left >= 0 && t.top >= 0 && t.left + t.width <= 300 + 1e-6 && t.top + t.height <= 200 + 1e-6)
    if (!t.up) continue
    assert.ok(t.left >= t.up.left && t.top >= t.up.top + t.up.head)
    assert.ok(t.left + t.width <= t.up.left + t.up.width + 1e-6 && t.top + t.height <= t.up.top + t.up.height + 1e-6)
  }
  for (const a of outer)
    for (const b of outer)
      if (a !== b)
        assert.ok(
          a.left + a.width <= b.left + 1e-6 || b.left + b.width <= a.left + 1e-6 || a.top + a.height <= b.top + 1e-6 || b.top + b.height <= a.top + 1e-6,
        )
  const inner = tiles.find((t) => t.item.name === 'x')!
  const hit = treemapHit(tiles, inner.left + inner.width / 2, inner.top + inner.height / 2)!
  assert.deepEqual(tilePath(hit).map((t) => t.item.name), ['a', 'x'])
  assert.equal(treemapHit(tiles, -1, 5), null)
  assert.deepEqual(treemapTiles([], 100, 100), [])
  assert.deepEqual(treemapTiles(items, 0, 0), [])
})
