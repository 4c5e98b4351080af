import assert from 'node:assert/strict'
import test from 'node:test'
import type { Trace, TraceBlock, TracedProcess } from '../src/api/schema'
import { bandAt, stackUp } from '../src/kit/series'
import { busOf, chartOf, faultText, lineOf, shareText, sitesOf, stackOf, transfersOf, whyNot } from '../src/views/trace_model'

const site = (number: number, text: string): Trace['sites'][number] => ({
  site: number,
  text,
  function: null,
  file: null,
  line: null,
  module: null,
  stack: [text, 'main.c:1 in main'],
})

const trace = (timeline: Partial<Trace['timeline']>): Trace =>
  ({
    sites: [site(1, 'train.py:4 in load'), site(2, 'train.py:9 in step')],
    timeline: { start: '1970-01-01T00:01:40.000Z', step: 2, now: '1970-01-01T00:01:50.000Z', device_peak: [], lines: [], ...timeline },
  }) as unknown as Trace

const line = (more: object): Trace['timeline']['lines'][number] => ({
  group: 'device',
  other: false,
  site: 1,
  space: 'dram',
  ordinal: 0,
  last: [10, 20],
  ...more,
})

test('the timeline is stacked with the largest holder at the bottom, and goes on to the moment of the trace', () => {
  const chart = chartOf(
    trace({ lines: [line({}), line({ site: 2, space: 'managed', last: [1, 2] }), line({ other: true, site: null, last: [0, 5] }), line({ group: 'host', last: [7, 7] })] }),
  )
  assert.deepEqual(chart.t, [102, 104, 110])
  assert.deepEqual(
    chart.lines.map((l) => [l.name, l.values, l.rest]),
    [
      ['others', [0, 5, 5], true],
      ['train.py:9 in step (managed)', [1, 2, 2], false],
      ['train.py:4 in load', [10, 20, 20], false],
    ],
  )
})

test('a slot that is not over yet ends now', () => {
  assert.deepEqual(chartOf(trace({ now: '1970-01-01T00:01:43.000Z', lines: [line({})] })).t, [102, 103])
})

test('a trace without events has no chart', () => {
  assert.deepEqual(chartOf(trace({ start: null })), { t: [], lines: [] })
})

test('the area under the pointer is that of the series whose part of the stack has this height', () => {
  const stacked = stackUp([[5], [2], [10]])
  assert.equal(bandAt(stacked, 0, 3), 2)
  assert.equal(bandAt(stacked, 0, 11), 1)
  assert.equal(bandAt(stacked, 0, 16), 0)
  assert.equal(bandAt(stacked, 0, 18), -1)
  assert.equal(bandAt(stacked, 0, -1), -1)
})

test('call sites have lines and stacks, also those that are not known', () => {
  const sites = sitesOf(trace({}))
  assert.equal(lineOf(sites, 2), 'train.py:9 in step')
  assert.equal(lineOf(sites, null), 'unknown')
  assert.equal(lineOf(sites, 9), 'unknown')
  assert.deepEqual(stackOf(sites, 9), [])
})

test('call sites with the same line are named by the caller in which they differ', () => {
  const below = (number: number, caller: string): Trace['sites'][number] => ({
    ...site(number, 'w.c:7 in alloc'),
    function: 'alloc',
    stack: ['driver', 'w.c:7 in alloc', 'w.c:9 in outer', caller, 'main'],
  })
  const all = sitesOf({ ...trace({}), sites: [below(1, 'a.c:1 in load'), below(2, 'a.c:2 in load'), site(3, 'b.c:1 in x')] })
  assert.equal(lineOf(all, 1), 'a.c:1 in load → alloc')
  assert.equal(lineOf(all, 2), 'a.c:2 in load → alloc')
  assert.equal(lineOf(all, 3), 'b.c:1 in x')
  const twins = sitesOf({ ...trace({}), sites: [below(1, 'a'), below(2, 'a')] })
  assert.equal(lineOf(twins, 1), 'w.c:7 in alloc')
})

test('faults are told with those before the first copy', () => {
  const block = (faults: number, early: number, copies = 1): TraceBlock => ({ faults, faults_before_copy: early, copies }) as TraceBlock
  assert.equal(faultText(block(0, 0)), '')
  assert.equal(faultText(block(8192, 8192)), 'faulted 8,192 times before its first copy')
  assert.equal(faultText(block(8, 3)), 'faulted 8 times, 3 before its first copy')
  assert.equal(faultText(block(1, 0)), 'faulted 1 time')
  assert.equal(faultText(block(2, 2, 0)), 'faulted 2 times')
})

test('why nothing is traced', () => {
  assert.equal(whyNot({ state: 'running', problem: '' }).title, 'It is not traced')
  assert.deepEqual(whyNot({ state: 'off', problem: 'memoird does not run as root' }), {
    title: 'CUDA programs are not traced here',
    text: 'Memoird does not run as root.',
  })
})

test('transfers of a device are those of its traced processes, most bytes first', () => {
  const flow = (n: number): { copies: number; bytes: number } => ({ copies: 1, bytes: n })
  const process = (pid: number, to: number): TracedProcess =>
    ({ pid, program: `p${pid}`, off: false, copies: { to_device: flow(to), from_device: flow(0), unknown: flow(1) }, lost: { events: 2, blocks: 1 } }) as unknown as TracedProcess
  const all = transfersOf([process(1, 5), process(2, 9), process(3, 100)], new Set([1, 2]))
  assert.deepEqual(
    all.map((t) => [t.pid, t.to.bytes, t.lost]),
    [
      [2, 9, 3],
      [1, 5, 3],
    ],
  )
  assert.deepEqual(
    transfersOf([process(1, 5), { ...process(2, 0), off: true }], new Set([1, 2])).map((t) => [t.pid, t.off]),
    [
      [1, false],
      [2, true],
    ],
  )
  assert.deepEqual(busOf(process(1, 5).copies), { copies: 3, bytes: 6 })
  assert.equal(shareText(1, 0), '-')
  assert.equal(shareText(1, 4), '25.0 %')
})
