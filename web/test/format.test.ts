import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bytes, cell, clock, count, duration, percent, perMinute, rate, wholeDuration } from '../src/base/format'

// The same cases as test/unit/test_units.c: the page and the command line must not differ.
test('sizes read as on the command line', () => {
  const cases: [number, string][] = [
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1.0 kB'],
    [1049, '1.0 kB'],
    [1050, '1.1 kB'],
    [999_949, '999.9 kB'],
    [999_950, '1.0 MB'],
    [25_500_000, '25.5 MB'],
    [2 ** 53, '9.0 PB'],
    [18_446_744_073_709_551_615, '18.4 EB'],
  ]
  for (const [value, text] of cases) assert.equal(bytes(value), text)
})

test('what is not known is no zero', () => {
  for (const format of [bytes, count, duration, percent, rate]) assert.equal(format(null), '-')
  assert.equal(cell(null, 'bytes'), '-')
  assert.equal(cell(0, 'bytes'), '0 B')
})

test('durations have at most two figures', () => {
  const cases: [number, string][] = [
    [850e-9, '850 ns'],
    [0.0032, '3.2 ms'],
    [3.2, '3.2 s'],
    [59.94, '59.9 s'],
    [59.96, '1m'],
    [252, '4m12s'],
    [18000, '5h'],
    [183_600, '2d3h'],
  ]
  for (const [value, text] of cases) assert.equal(duration(value), text)
  assert.equal(wholeDuration(59.2), '59s')
})

test('counts are grouped and rates have a sign', () => {
  assert.equal(count(999), '999')
  assert.equal(count(12345678), '12,345,678')
  assert.equal(rate(1_200_000), '+1.2 MB/s')
  assert.equal(rate(-5), '−5 B/s')
  assert.equal(rate(0), '0 B/s')
  assert.equal(perMinute(48_600), '+2.9 MB/min')
  assert.equal(perMinute(-1), '−60 B/min')
  assert.equal(perMinute(0), '0 B/min')
})

test('marks of a cell say estimate and at least', () => {
  assert.equal(cell(25_500_000, 'bytes', { estimate: true }), '~25.5 MB')
  assert.equal(cell(25_500_000, 'bytes', { atLeast: true }), '25.5 MB+')
  assert.equal(cell(true, 'yes'), 'yes')
  assert.equal(cell(0, 'age'), '0s')
  assert.equal(cell(0.002, 'age'), '2.0 ms')
  assert.equal(cell(7.46, 'percent'), '7.5 %')
})

test('a time is told in seconds since 1970 or in ISO 8601', () => {
  assert.equal(clock(Date.parse('2026-01-31T12:00:30Z') / 1000), clock('2026-01-31T12:00:30Z'))
})
