import assert from 'node:assert/strict'
import test from 'node:test'
import { fitText } from '../src/draw/canvas'
import { fragmentCells, fragmentsOf } from '../src/draw/fragments'
import { heatBucket, heatOf, heatShade, SHADES } from '../src/draw/heat'
import { icicleBoxes, icicleHit, icicleLevels, icicleMove, icicleSpan } from '../src/draw/icicle'
import { frames, treeChange, treeDiff, treeFollow, treeOf, treePath, treeRows, treeSearch } from '../src/draw/tree'
import type { FlameAnswer, Frame } from '../src/draw/tree'

/** main -> parse (30, of it 10 in grow), serve (60, of it 50 in grow); 10 in main itself */
const answer = (more: Partial<FlameAnswer> = {}): FlameAnswer => ({
  values: ['live_bytes', 'live_blocks'],
  names: ['shop', 'main', 'parse', 'serve', 'grow'],
  keys: ['k0', 'k1', 'k2', 'k3', 'k4'],
  nodes: [
    [-1, 0, 100, 10],
    [0, 1, 100, 10],
    [1, 2, 30, 3],
    [2, 4, 10, 1],
    [1, 3, 60, 6],
    [4, 4, 50, 5],
  ],
  ...more,
})
const tree = (more?: Partial<FlameAnswer>): Frame => treeOf(answer(more), 0)!
const named = (root: Frame, name: string): Frame => frames(root).find((it) => it.name === name)!
const path = (it: Frame): string =>
  treePath(it)
    .map((step) => step.name)
    .join('/')

test('a frame has what it called and what it holds itself', () => {
  const main = named(tree(), 'main')
  assert.deepEqual([main.total, main.self], [100, 10])
  assert.deepEqual(
    main.below.map((it) => [it.name, it.total, it.self]),
    [
      ['serve', 60, 10],
      ['parse', 30, 20],
    ],
  )
})

test('a caller is never smaller than what it called, so that nothing sticks out of the picture', () => {
  const root = tree({
    nodes: [
      [-1, 0, 5, 0],
      [0, 1, 10, 0],
      [0, 2, 10, 0],
    ],
  })
  assert.deepEqual([root.total, root.self, root.width], [20, 0, 1])
  assert.deepEqual(
    root.below.map((it) => [it.x, it.width]),
    [
      [0, 0.5],
      [0.5, 0.5],
    ],
  )
})

test('how the C library starts a program is left out', () => {
  const names = ['', '_start', '__libc_start_main@@GLIBC_2.34', 'main', '_start']
  const nodes = [
    [-1, 0, 9, 1],
    [0, 1, 9, 1],
    [1, 2, 9, 1],
    [2, 3, 9, 1],
    [3, 4, 4, 1],
  ]
  const root = treeOf({ program: 'shop', names, keys: names, values: ['live_bytes'], nodes }, 0)!
  assert.deepEqual(
    frames(root).map((it) => [it.name, it.total]),
    [
      ['shop', 9],
      ['main', 9],
      ['_start', 4],
    ],
    'what a program itself calls so stays',
  )
})

test('an answer whose frames come before their callers is refused', () => {
  assert.throws(
    () =>
      tree({
        nodes: [
          [-1, 0, 1, 1],
          [2, 1, 1, 1],
          [0, 2, 1, 1],
        ],
      }),
    RangeError,
  )
  assert.equal(treeOf({ ...answer(), nodes: [] }, 0), null)
})

test('the second value of the answer makes another picture', () => {
  assert.equal(treeOf(answer(), 1)!.total, 10)
})

test('a comparison keeps what is new and what is gone', () => {
  const later = tree({
    nodes: [
      [-1, 0, 140, 0],
      [0, 1, 140, 0],
      [1, 3, 120, 0],
    ],
  })
  const both = treeDiff(tree(), later)
  const serve = named(both, 'serve')
  assert.deepEqual([serve.total, serve.before], [120, 60])
  assert.equal(treeChange(serve), 0.5)
  const gone = both.below[0]!.below.find((it) => it.name === 'parse')!
  assert.deepEqual([gone.total, gone.before, treeChange(gone)], [0, 30, -1])
  assert.ok(gone.width > 0, 'what went away has a width')
  assert.equal(treeChange(named(tree(), 'serve')), 0)
})

test('the same function called by two is two frames, also in a comparison', () => {
  const both = treeDiff(tree(), tree())
  const grown = frames(both).filter((it) => it.name === 'grow')
  assert.deepEqual(grown.map((it) => [it.total, it.before]).sort(), [
    [10, 10],
    [50, 50],
  ])
})

test('a frame is found again in the answer of another moment', () => {
  const first = tree()
  const deep = named(first, 'serve').below[0]!
  assert.equal(path(treeFollow(deep, tree())), 'shop/main/serve/grow')
  const without = tree({ nodes: answer().nodes.slice(0, 4) })
  assert.equal(path(treeFollow(deep, without)), 'shop/main')
})

test('a search counts what is below another hit once', () => {
  const found = treeSearch(tree(), ' GROW ')
  assert.deepEqual([found.match.size, found.total], [2, 60])
  assert.deepEqual([treeSearch(tree(), 'r').match.size, treeSearch(tree(), 'r').total], [4, 90])
  assert.equal(treeSearch(tree(), '').match.size, 0)
})

test('the table has the largest first, in a comparison what changed most', () => {
  assert.deepEqual(
    treeRows(tree(), 3).map((it) => it.name),
    ['shop', 'main', 'serve'],
  )
  const later = tree({ nodes: answer().nodes.map((node, i) => (i === 3 ? [2, 4, 25, 0] : node)) })
  assert.equal(treeRows(treeDiff(tree(), later), 1)[0]!.name, 'grow')
})

test('the whole tree fills the width and zooming fills it with one frame', () => {
  const root = tree()
  const all = icicleBoxes(root, icicleSpan(root), 1000, 20)
  assert.equal(all.length, 6)
  assert.equal(icicleLevels(all), 4)
  assert.deepEqual(all.map((b) => [b.frame.name, Math.round(b.left), b.top, Math.round(b.width)])[2], [
    'serve',
    0,
    40,
    600,
  ])
  const parse = named(root, 'parse')
  const zoomed = icicleBoxes(root, icicleSpan(parse), 1000, 20)
  assert.deepEqual(
    zoomed.map((b) => b.frame.name),
    ['shop', 'main', 'parse', 'grow'],
  )
  for (const box of zoomed.slice(0, 3)) assert.deepEqual([box.left, Math.round(box.width)], [0, 1000])
})

test('frames too narrow to be seen are not painted', () => {
  const root = tree()
  assert.deepEqual(
    icicleBoxes(root, icicleSpan(root), 10, 20, 2).map((b) => b.frame.name),
    ['shop', 'main', 'serve', 'grow', 'parse'],
  )
})

test('the pointer finds the frame under it', () => {
  const root = tree()
  const boxes = icicleBoxes(root, icicleSpan(root), 1000, 20)
  assert.equal(icicleHit(boxes, 20, 599, 45)!.name, 'serve')
  assert.equal(icicleHit(boxes, 20, 601, 45)!.name, 'parse')
  assert.equal(icicleHit(boxes, 20, 950, 45), null)
  assert.equal(icicleHit(boxes, 20, 5, 500), null)
})

test('arrow keys move among what is on the screen', () => {
  const root = tree()
  const boxes = icicleBoxes(root, icicleSpan(root), 1000, 20)
  const serve = named(root, 'serve')
  assert.equal(icicleMove(boxes, root, 'down').name, 'main')
  assert.equal(icicleMove(boxes, serve, 'right').name, 'parse')
  assert.equal(icicleMove(boxes, serve, 'left'), serve)
  assert.equal(icicleMove(boxes, serve, 'up').name, 'main')
  assert.equal(icicleMove(boxes, root, 'up'), root)
  assert.equal(path(icicleMove(boxes, serve.below[0]!, 'right')), 'shop/main/parse/grow')
})

test('shades follow the logarithm and show the smallest', () => {
  assert.equal(heatShade(0, 1, 100), 0)
  assert.equal(heatShade(1, 1, 1e6), 1)
  assert.equal(heatShade(1e6, 1, 1e6), SHADES)
  assert.equal(heatShade(1e3, 1, 1e6), 4)
  assert.equal(heatShade(5, 5, 5), SHADES)
})

test('the heat map sums its rows and columns', () => {
  const heat = heatOf([
    [1, 0, 10],
    [0, 0, 100_000],
  ])
  assert.deepEqual(heat.rows, [11, 100_000])
  assert.deepEqual(heat.columns, [1, 0, 100_010])
  assert.equal(heat.total, 100_011)
  assert.deepEqual(heat.shades, [
    [1, 0, 1],
    [0, 0, SHADES],
  ])
  assert.deepEqual(heatOf([]), { shades: [], rows: [], columns: [], total: 0 })
})

test('buckets are named by their bounds', () => {
  const text = (value: number): string => `${value} s`
  assert.deepEqual(
    [0, 1, 2].map((i) => heatBucket([0, 1, 60], i, text)),
    ['under 1 s', '1 s – 60 s', 'over 60 s'],
  )
})

test('holes between blocks are counted, with the largest', () => {
  const map = fragmentsOf(
    [
      { id: '0x100', bytes: 256, pid: 1 },
      { id: '0x300', bytes: 256, pid: 2 },
    ],
    2048,
  )
  assert.deepEqual(
    [map.addresses, map.base, map.size, map.used, map.free, map.gaps, map.largestGap],
    [true, 0n, 2048, 512, 1536, 3, 1024],
  )
  assert.ok(Math.abs(map.fragmentation! - 1 / 3) < 1e-9)
})

test('blocks above the size of the memory tell where it starts', () => {
  const map = fragmentsOf(
    [
      { id: '0x7f0000000000', bytes: 100, pid: 1 },
      { id: '0x7f0000000100', bytes: 100, pid: 1 },
    ],
    1000,
  )
  assert.deepEqual([map.addresses, map.base, map.pieces[1]!.start], [true, 0x7f0000000000n, 256])
})

test('handles are not taken for addresses', () => {
  const far = [
    { id: '0x1', bytes: 64, pid: 1 },
    { id: '0xffff0000', bytes: 64, pid: 1 },
  ]
  const dense = [
    { id: '1', bytes: 64, pid: 1 },
    { id: '2', bytes: 64, pid: 1 },
  ]
  const words = [{ id: 'weights', bytes: 64, pid: 1 }]
  for (const blocks of [far, dense, words]) {
    const map = fragmentsOf(blocks, 1024)
    assert.deepEqual([map.addresses, map.gaps, map.fragmentation], [false, 0, null])
    assert.equal(map.used, 64 * blocks.length)
  }
})

test('a full memory has no hole, an empty one is whole', () => {
  const full = fragmentsOf([{ id: '0x0', bytes: 1024, pid: 1 }], 1024)
  assert.deepEqual([full.free, full.gaps, full.fragmentation], [0, 0, null])
  const empty = fragmentsOf([], 1024)
  assert.deepEqual([empty.used, empty.free, empty.fragmentation], [0, 1024, null])
})

test('cells tell how full they are and who holds most', () => {
  const map = fragmentsOf(
    [
      { id: '0', bytes: 150, pid: 7 },
      { id: '150', bytes: 50, pid: 8 },
    ],
    400,
  )
  const cells = fragmentCells(map, 4)
  assert.deepEqual(cells, [
    { used: 1, pid: 7, blocks: 1 },
    { used: 1, pid: 7, blocks: 2 },
    { used: 0, pid: -1, blocks: 0 },
    { used: 0, pid: -1, blocks: 0 },
  ])
  assert.equal(fragmentCells(fragmentsOf([], null), 4).length, 4)
})

test('text that does not fit ends with an ellipsis, or is left out', () => {
  const measure = (text: string): number => text.length * 10
  assert.equal(fitText('function', 80, measure), 'function')
  assert.equal(fitText('function', 60, measure), 'funct…')
  assert.equal(fitText('function', 25, measure), '')
})
