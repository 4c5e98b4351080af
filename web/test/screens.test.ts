import assert from 'node:assert/strict'
import test from 'node:test'
import type { Suspect } from '../src/api/types'
import type { FlameAnswer } from '../src/draw/tree'
import { frameMark, treeFind, treeOf } from '../src/draw/tree'
import { evenly, trendLine } from '../src/draw/trend'
import { devicesOf, driverProcessesOf, fullest, ownersOf, rowsOf, spaceNames } from '../src/views/device_model'
import { addMoment, MOMENTS_MAX, type Moment } from '../src/views/heap_moments'
import { everyMs, groupsOf, shownRange } from '../src/views/history_model'
import {
  asSentence,
  levelOf,
  limitSentence,
  rankSuspects,
  sitePlace,
  suspectKey,
  sureness,
} from '../src/views/suspect_model'
import { transposed } from '../src/views/tables_model'

const device = (space: string, used: number, more: object = {}): Record<string, unknown> => ({
  device: '0 Card',
  ordinal: 0,
  device_name: 'Card',
  device_id: 'uid-0',
  space,
  used,
  capacity: null,
  blocks: 1,
  processes: 1,
  ...more,
})

test('rows come as arrays or as objects', () => {
  const columns = [{ name: 'pid' }, { name: 'rss' }]
  assert.deepEqual(rowsOf({ columns, rows: [[1, null]] }), [{ pid: 1, rss: null }])
  assert.deepEqual(rowsOf({ columns, rows: [{ pid: 1, rss: null }] }), [{ pid: 1, rss: null }])
})

test('what shares the memory on the chip is one bar of several parts', () => {
  const [card] = devicesOf([
    device('kernel', 1),
    device('cb', 2),
    device('system', 9),
    device('dram', 8, { capacity: 16 }),
    device('l1', 4, { capacity: 10, disputed: true }),
  ])
  assert.deepEqual(
    card!.spaces.map((space) => space.disputed),
    [false, true, false],
  )
  assert.deepEqual(
    card!.spaces.map((space) => [space.name, space.used, space.capacity]),
    [
      ['dram', 8, 16],
      ['l1', 7, 10],
      ['system', 9, null],
    ],
  )
  assert.deepEqual(spaceNames(card!.spaces[1]!), ['l1', 'cb', 'kernel'])
  assert.equal(card!.used, 15, 'host memory of the device is no part of it')
})

test('a device without a size says so, and the host is no device', () => {
  const list = devicesOf([device('dram', 8), { ...device('heap', 5), device: 'host', device_id: '' }])
  assert.deepEqual(
    list.map((one) => [one.id, one.spaces[0]!.capacity]),
    [['uid-0', null]],
  )
})

test("the driver's figures stand beside what is accounted, and are null where it tells none", () => {
  const [card] = devicesOf([
    device('dram', 3, { capacity: 100, 'driver.used': 90, 'driver.reserved': 1, unattributed: 87, confirmed: true }),
  ])
  assert.deepEqual(card!.driver, { used: 90, reserved: 1, unattributed: 87, capacity: 100 })
  assert.equal(fullest(card!), 0.9)
  const [silent] = devicesOf([device('dram', 3, { capacity: 100, 'driver.used': null, confirmed: true })])
  assert.deepEqual(silent!.driver, { used: null, reserved: null, unattributed: null, capacity: 100 })
  const [other] = devicesOf([device('dram', 3, { capacity: 100, 'driver.used': null, confirmed: false })])
  assert.equal(other!.driver, null)
})

test('processes of the driver are of one device, the largest first', () => {
  const row = (pid: number | null, driver: number | null, more: object = {}): Record<string, unknown> => ({
    device_id: 'uid-0',
    pid,
    driver_pid: pid ?? 99,
    program: pid === null ? null : 'p',
    driver,
    accounted: null,
    ...more,
  })
  const list = driverProcessesOf([row(1, null), row(2, 5), row(null, 9), row(4, 7, { device_id: 'uid-1' })], 'uid-0')
  assert.deepEqual(
    list.map((process) => [process.pid, process.driverPid, process.bytes]),
    [
      [null, 99, 9],
      [2, 2, 5],
      [1, 1, null],
    ],
  )
})

test('devices are in the order of their numbers', () => {
  const list = devicesOf([
    device('dram', 1, { ordinal: 1, device_id: 'b' }),
    device('dram', 1, { ordinal: 0, device_id: 'a' }),
  ])
  assert.deepEqual(
    list.map((one) => one.id),
    ['a', 'b'],
  )
})

test('holders of a memory are summed by process, the largest first', () => {
  const row = (pid: number, space: string, bytes: number): Record<string, unknown> => ({
    pid,
    program: `p${pid}`,
    device_id: 'uid-0',
    space,
    bytes,
    blocks: 1,
  })
  const rows = [row(1, 'l1', 5), row(1, 'cb', 5), row(2, 'l1', 20), row(3, 'dram', 99), row(4, 'l1', 0)]
  assert.deepEqual(
    ownersOf(rows, 'uid-0', ['l1', 'cb']).map((owner) => [owner.pid, owner.bytes, owner.blocks]),
    [
      [2, 20, 1],
      [1, 10, 2],
    ],
  )
  assert.deepEqual(ownersOf(rows, 'uid-1', ['l1']), [])
})

const suspect = (more: Partial<Suspect>): Suspect => ({
  pid: 1,
  program: 'shop',
  level: 'growing',
  confidence: 0.5,
  score: null,
  rate: 10,
  live_bytes: 100,
  live_blocks: 1,
  site: { function: 'f', file: '/src/f.c', line: 3 },
  stack: [],
  since: null,
  limit: null,
  why: [],
  series: null,
  samples: [],
  ...more,
})

test('leaks come first, then what runs out soonest, then what grows fastest', () => {
  const soon = { in_s: 60, bytes: 1, what: 'machine' }
  const order = rankSuspects([
    suspect({ pid: 1, rate: 5 }),
    suspect({ pid: 2, rate: 50 }),
    suspect({ pid: 3, limit: { ...soon, in_s: 600 } }),
    suspect({ pid: 4, limit: soon }),
    suspect({ pid: 5, level: 'leak', rate: 1 }),
  ])
  assert.deepEqual(
    order.map((one) => one.pid),
    [5, 4, 3, 2, 1],
  )
})

test('a verdict is told in words', () => {
  assert.equal(sureness(suspect({ confidence: 0.92 })), '92 % sure')
  assert.equal(sureness(suspect({ confidence: null })), '')
  assert.equal(sitePlace({ function: 'f', file: '/a/b.c', line: 7 }), 'b.c:7')
  assert.equal(sitePlace(null), '')
  assert.equal(levelOf('leak').tone, 'bad')
  assert.equal(asSentence('rose by 1 MB'), 'It rose by 1 MB')
  assert.equal(asSentence('Of all, 0 % was freed.'), 'Of all, 0 % was freed.')
  assert.equal(levelOf('strange').title, 'strange')
  const text = limitSentence(suspect({ limit: { in_s: 3600, bytes: 2e9, what: 'cgroup' } }))
  assert.equal(text, 'At this rate the limit of its cgroup (2.0 GB) is reached in 1h.')
  assert.equal(limitSentence(suspect({})), '')
  assert.notEqual(suspectKey(suspect({ pid: 1 })), suspectKey(suspect({ pid: 2 })))
})

test('the line of the rate lies in the middle of what was measured', () => {
  assert.deepEqual(trendLine([10, 11, 12, 13], [5, 16, 25, 35], 10), [5, 15, 25, 35])
  assert.deepEqual(trendLine([1, 2], [null, 5], 1), [null, null])
  assert.deepEqual(trendLine([0, 10], [1, 0], -1), [5.5, 0], 'memory is never less than nothing')
})

test('series that belong together share a chart, and empty ones are left out', () => {
  const series = (
    name: string,
    kind: 'bytes' | 'number',
    value: number | null,
  ): { name: string; kind: 'bytes' | 'number'; last: (number | null)[] } => ({ name, kind, last: [value] })
  const groups = groupsOf({
    from: 0,
    to: 1,
    step: 1,
    t: [1],
    series: [
      series('blocks', 'number', 3),
      series('device.dram', 'bytes', 9),
      series('heap', 'bytes', 4),
      series('rss', 'bytes', 5),
      series('pss', 'bytes', 4),
      series('pinned', 'bytes', 0),
      series('swap', 'bytes', null),
    ],
  })
  assert.deepEqual(
    groups.map((group) => [group.id, group.series.map((one) => one.name)]),
    [
      ['resident', ['rss', 'pss']],
      ['accounted', ['heap']],
      ['device', ['device.dram']],
      ['blocks', ['blocks']],
    ],
  )
  assert.equal(everyMs(600, true), Infinity)
  assert.ok(everyMs(600, false) >= 2000)
})

const answer = (bytes: number): FlameAnswer => ({
  names: ['p', 'main'],
  keys: ['p', 'main'],
  values: ['live_bytes'],
  nodes: [
    [-1, 0, bytes],
    [0, 1, bytes],
  ],
})

test('moments are kept once a minute and by hand, and not without end', () => {
  let moments: Moment[] = addMoment([], answer(0), 0)
  moments = addMoment(moments, answer(1), 1000)
  assert.equal(moments.length, 1, 'too soon')
  moments = addMoment(moments, answer(2), 2000, true)
  assert.deepEqual(
    moments.map((moment) => moment.kept),
    [false, true],
  )
  for (let minute = 2; minute < 40; minute++) moments = addMoment(moments, answer(minute), minute * 60_000)
  assert.equal(moments.length, MOMENTS_MAX)
  assert.deepEqual([moments[0]!.time, moments[1]!.time], [0, 2000], 'the first and what was kept by hand stay')
  assert.equal(moments[MOMENTS_MAX - 1]!.time, 39 * 60_000)
})

test('a frame is found by its mark in the answer of another moment', () => {
  const main = treeOf(answer(5), 0)!.below[0]!
  assert.equal(treeFind(treeOf(answer(7), 0)!, frameMark(main))!.total, 7)
  assert.equal(treeFind(main, 'ffff'), null)
  assert.equal(treeFind(main, ''), null)
})

test('ages in rows become sizes in rows', () => {
  assert.deepEqual(
    transposed(
      [
        [1, 2],
        [3, 4],
      ],
      2,
    ),
    [
      [1, 3],
      [2, 4],
    ],
  )
  assert.deepEqual(transposed([[1]], 3), [[1], [0], [0]])
})

test('a chart begins where something is known, if that is late', () => {
  const answer = (first: number): Parameters<typeof shownRange>[0] => {
    const t = Array.from({ length: 100 }, (_, i) => i * 10)
    return {
      from: 0,
      to: 1000,
      step: 10,
      t,
      series: [{ name: 'rss', kind: 'bytes', last: t.map((_, i) => (i < first ? null : 1)) }],
    }
  }
  assert.deepEqual(shownRange(answer(10)), [0, 1000])
  assert.deepEqual(shownRange(answer(90)), [900, 1000])
  assert.deepEqual(shownRange(answer(99)), [970, 1000], 'never a sliver')
})

test('a small chart is even in time, whenever it was looked', () => {
  const t = [0, 50, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100]
  assert.deepEqual(evenly(t, t, 5), [0, 0, 50, 50, 100])
  assert.deepEqual(evenly([5, 6], [1, null]), [1, null])
})
