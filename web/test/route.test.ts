import assert from 'node:assert/strict'
import { test } from 'node:test'
import { link, parsePlace, place, remoteNode, withWords } from '../src/base/route'

test('an address leads back to where it was made', () => {
  const filter = 'user=ann and program ~ "a&b/c#d?"'
  const place = parsePlace(link('processes', { where: filter, sort: '-rss' }))
  assert.deepEqual(place.parts, ['processes'])
  assert.equal(place.query.get('where'), filter)
  assert.equal(place.query.get('sort'), '-rss')
})

test('an empty or broken address is the overview, or what can be read of it', () => {
  assert.equal(parsePlace('').path, 'overview')
  assert.equal(parsePlace('#/').path, 'overview')
  assert.deepEqual(parsePlace('#/process/%zz/').parts, ['process', '%zz'])
})

test('words change one by one, and go when they are empty', () => {
  const place = parsePlace('#/processes?where=rss%3E1&sort=-rss')
  assert.equal(withWords(place, { sort: '+pid' }), '#/processes?where=rss%3E1&sort=%2Bpid')
  assert.equal(withWords(place, { where: null, sort: '' }), '#/processes')
})

test('a part of a path may hold a slash', () => {
  assert.deepEqual(parsePlace(link('containers') + '/a%2Fb').parts, ['containers', 'a/b'])
})

test('links from a view of another node stay on that node', () => {
  place.value = parsePlace('#/process/7?node=n2')
  assert.equal(remoteNode.value, 'n2')
  assert.equal(link('processes'), '#/processes?node=n2')
  assert.equal(link('processes', { node: null }), '#/processes')
  assert.equal(link('cluster'), '#/cluster', 'the cluster is the same from everywhere')
  place.value = parsePlace('#/cluster?node=n2')
  assert.equal(remoteNode.value, '', 'not of another node')
  place.value = parsePlace('')
})
