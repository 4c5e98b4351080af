import assert from 'node:assert/strict'
import { test } from 'node:test'
// @ts-expect-error: plain JavaScript, which node also runs by itself
import { typeOf, types } from '../types.mjs'

test('schemas become types', () => {
  assert.equal(typeOf({ type: ['integer', 'null'] }), 'number | null')
  assert.equal(typeOf({ type: 'array', items: { type: ['number', 'null'] } }), '(number | null)[]')
  assert.equal(typeOf({ enum: ['read', 'control'] }), '"read" | "control"')
  assert.equal(typeOf({ $ref: '#/components/schemas/Session' }), 'Session')
  assert.equal(typeOf({ type: 'array', prefixItems: [{ type: 'integer' }, { type: 'string' }] }), '[number, string]')
  assert.equal(typeOf({ type: 'object', additionalProperties: { type: 'number' } }), 'Record<string, number>')
  assert.equal(
    typeOf({ type: 'object', required: ['a'], properties: { a: { type: 'string' }, 'b.c': { type: 'boolean' } } }),
    '{\n  a: string\n  "b.c"?: boolean\n}',
  )
})

test('routes tell what they take and answer', () => {
  const text: string = types({
    paths: {
      '/api/v1/x/{pid}': {
        get: {
          summary: 'X',
          parameters: [{ name: 'pid', in: 'path', required: true, schema: { type: 'integer' } }],
          responses: { 200: { content: { 'application/json': { schema: { $ref: '#/components/schemas/X' } } } } },
        },
      },
    },
    components: { schemas: { X: { type: 'object', properties: { n: { type: 'integer' } } } } },
  })
  assert.match(text, /export interface X \{\n {2}n\?: number\n\}/)
  assert.match(text, /'GET \/api\/v1\/x\/\{pid\}': \{\n {4}args: \{\n {6}pid: number\n {4}\}\n {4}answer: X/)
})
