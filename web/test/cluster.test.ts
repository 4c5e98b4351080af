import assert from 'node:assert/strict'
import test from 'node:test'
import { treemapHit, treemapTiles, tilePath, type TreemapItem } from '../src/draw/treemap'
import { addProcesses, median, missingText, nodesOf, outliers, share, spreadOf, treeOfRows, type Member } from '../src/views/cluster_model'

const member = (node: string, more: Partial<Member> = {}): Member => ({
  node,
  name: node,
  id: `id-${node}`,
  self: false,
  state: 'alive',
  state_s: 1,
  version: '0.1.0',
  heard_s: 1,
  answer_ms: 1,
  answered_s: 1,
  clock_offset_s: 0,
  ...more,
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

test('one node among equal ones is the outlier; two nodes cannot tell', () => {
  assert.deepEqual(outliers([100, 101, 400]), [false, false, true])
  assert.deepEqual(outliers([100, 101, 99, 102]), [false, false, false, false])
  assert.deepEqual(outliers([100, 900]), [false, false])
  assert.deepEqual(outliers([0, 0, 0]), [false, false, false])
  assert.equal(median([4, 1, 3, 2]), 2.5)
})

test('programs are summed over nodes, the largest first; unknown figures are left out', () => {
  const [train, shell] = spreadOf(
    [
      { program: 'sh', node: 'a', rss: 5, count: 2 },
      { program: 'train', node: 'a', rss: 10, count: 1, growth: 2 },
      { program: 'train', node: 'b', rss: 12, count: 1, growth: -1 },
      { program: 'train', node: 'c', rss: 90, count: 1 },
      { program: 'train', node: 'd', rss: null, count: 1 },
    ],
    'rss',
  )
  assert.deepEqual([train!.program, train!.total, train!.processes, train!.rate], ['train', 112, 3, 1])
  assert.deepEqual(
    train!.nodes.map((n) => [n.node, n.outlier]),
    [
      ['c', true],
      ['b', false],
      ['a', false],
    ],
  )
  assert.deepEqual([shell!.program, shell!.rate], ['sh', null])
})

test('the map has nodes, programs and processes; what is not shown singly is one tile', () => {
  const tree = addProcesses(
    treeOfRows(
      spreadOf(
        [
          { program: 'train', node: 'b', rss: 100, count: 3 },
          { program: 'sh', node: 'a', rss: 7, count: 1 },
        ],
        'rss',
      ),
    ),
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
