// Types of the API for TypeScript, from memoird's OpenAPI description.

const HEAD = `// Made by web/types.mjs from memoird's OpenAPI description (web/make-types.mjs): do not edit.
`

const NAME = /^[A-Za-z_$][\w$]*$/
const key = (name) => (NAME.test(name) ? name : JSON.stringify(name))
const refName = (ref) => ref.split('/').pop()

/** A JSON Schema as a TypeScript type. */
export function typeOf(schema, indent = '') {
  if (schema === true || schema == null) return 'unknown'
  if (schema.$ref) return refName(schema.$ref)
  if ('const' in schema) return JSON.stringify(schema.const)
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(' | ')
  const several = schema.oneOf ?? schema.anyOf
  if (several) return several.map((s) => typeOf(s, indent)).join(' | ')
  if (schema.allOf) return schema.allOf.map((s) => typeOf(s, indent)).join(' & ')
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type }, indent)).join(' | ')
  switch (schema.type) {
    case 'string':
    case 'boolean':
    case 'null':
      return schema.type
    case 'integer':
    case 'number':
      return 'number'
    case 'array':
      return arrayOf(schema, indent)
    case 'object':
      return objectOf(schema, indent)
    default:
      return schema.properties ? objectOf(schema, indent) : 'unknown'
  }
}

function arrayOf(schema, indent) {
  if (schema.prefixItems) return `[${schema.prefixItems.map((s) => typeOf(s, indent)).join(', ')}]`
  const item = typeOf(schema.items, indent)
  return /[|&]/.test(item) ? `(${item})[]` : `${item}[]`
}

function objectOf(schema, indent) {
  const required = new Set(schema.required ?? [])
  const inner = indent + '  '
  const lines = Object.entries(schema.properties ?? {}).flatMap(([name, member]) => [
    ...comment(member.description, inner),
    `${inner}${key(name)}${required.has(name) ? '' : '?'}: ${typeOf(member, inner)}`,
  ])
  const more = schema.additionalProperties
  if (lines.length === 0) return `Record<string, ${typeOf(more === false ? null : more, indent)}>`
  if (more && typeof more === 'object') lines.push(`${inner}[name: string]: unknown`)
  return `{\n${lines.join('\n')}\n${indent}}`
}

const comment = (text, indent) => (text ? [`${indent}/** ${text.replace(/\*\//g, '* /')} */`] : [])

/** What a route takes, by name, and what it answers. */
function route(path, method, operation) {
  const params = (operation.parameters ?? []).map(
    (p) => `    ${key(p.name)}${p.required ? '' : '?'}: ${typeOf(p.schema)}`,
  )
  const content = operation.responses?.['200']?.content ?? {}
  const answer = content['application/json']?.schema
  return [
    ...comment(operation.summary, '  '),
    `  '${method.toUpperCase()} ${path}': {`,
    ...(params.length ? ['    args: {', ...params.map((line) => '  ' + line), '    }'] : ['    args: Record<string, never>']),
    `    answer: ${answer ? typeOf(answer, '    ') : 'unknown'}`,
    '  }',
  ]
}

export function types(api) {
  const out = [HEAD]
  for (const [name, schema] of Object.entries(api.components?.schemas ?? {})) {
    const type = typeOf(schema)
    out.push(...comment(schema.description, ''), type.startsWith('{') ? `export interface ${name} ${type}` : `export type ${name} = ${type}`, '')
  }
  out.push('export interface Routes {')
  for (const [path, methods] of Object.entries(api.paths ?? {}))
    for (const [method, operation] of Object.entries(methods)) if (operation.responses) out.push(...route(path, method, operation))
  out.push('}', '')
  return out.join('\n')
}
