import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { address, fetchJson, get, locked, post, Problem } from '../src/api/client'
import { setNodeToken } from '../src/base/node_tokens'

const real = globalThis.fetch
afterEach(() => {
  globalThis.fetch = real
  locked.value = false
})

/** The next answer, and what was asked. */
function answer(status: number, body: unknown, headers: Record<string, string> = {}): { init?: RequestInit } {
  const asked: { init?: RequestInit } = {}
  globalThis.fetch = (async (_url: string, init: RequestInit) => {
    asked.init = init
    return new Response(status === 304 ? null : JSON.stringify(body), { status, headers })
  }) as typeof fetch
  return asked
}

const caught = async (promise: Promise<unknown>): Promise<Problem> => {
  try {
    await promise
  } catch (error) {
    assert.ok(error instanceof Problem)
    return error
  }
  assert.fail('no problem')
}

test('arguments without a value are not sent', () => {
  assert.equal(address('/query', { where: 'a=1, b~"x"', by: '', limit: null }), '/api/v1/query?where=a%3D1%2C+b%7E%22x%22')
})

test('an answer that did not change is no answer', async () => {
  const asked = answer(304, null)
  assert.equal(await fetchJson('/x', '"abc"'), null)
  assert.equal((asked.init!.headers as Record<string, string>)['If-None-Match'], '"abc"')
})

test('a problem tells where in the query the mistake is', async () => {
  answer(400, { title: 'Bad query', detail: "no column 'rsss'", status: 400, part: 'where', at: 4, len: 4 })
  const problem = await caught(get('/processes'))
  assert.deepEqual([problem.status, problem.part, problem.at, problem.len], [400, 'where', 4, 4])
  assert.equal(problem.message, "no column 'rsss'")
})

test('who is not known any more is shown the way in', async () => {
  answer(401, { title: 'Who are you?' })
  assert.equal((await caught(get('/self'))).status, 401)
  assert.equal(locked.value, true)
})

test('a connection that fails is a problem, too', async () => {
  globalThis.fetch = (async () => {
    throw new TypeError('connection refused')
  }) as typeof fetch
  assert.equal((await caught(get('/self'))).status, 0)
})

test('an answer that is no JSON keeps its status, and says when to come again', async () => {
  globalThis.fetch = (async () => new Response('busy', { status: 429, headers: { 'Retry-After': '7' } })) as typeof fetch
  const problem = await caught(get('/self'))
  assert.deepEqual([problem.status, problem.retryAfter], [429, 7])
})

test('what is posted is JSON', async () => {
  const asked = answer(200, { on: true })
  assert.deepEqual(await post('/x', { on: true }), { on: true })
  assert.equal(asked.init!.body, '{"on":true}')
})

test('a token of a node goes with questions about that node alone', async () => {
  setNodeToken('web', 'secret')
  const asked = answer(200, {})
  const sent = (): unknown => (asked.init!.headers as Record<string, string>)['Memoir-Node-Token']
  await fetchJson(address('/processes', { node: 'web' }), null)
  assert.equal(sent(), 'secret')
  await fetchJson(address('/processes', { node: 'db' }), null)
  assert.equal(sent(), undefined)
  await fetchJson(address('/processes'), null)
  assert.equal(sent(), undefined)
  setNodeToken('web', '')
  await fetchJson(address('/processes', { node: 'web' }), null)
  assert.equal(sent(), undefined)
})

test('characters that change what is seen are shown as such, however they are written', async () => {
  globalThis.fetch = (async () => new Response('{"raw":"exe\u202egpj","escaped":"a\\u202Eb\\u200bc","tag":"x\u{e0041}y","fine":"zo\u00eb\\u00e9"}', { status: 200 })) as typeof fetch
  assert.deepEqual(await get('/cluster'), { raw: 'exe\ufffdgpj', escaped: 'a\ufffdb\ufffdc', tag: 'x\ufffdy', fine: 'zo\u00eb\u00e9' })
})
