// Texts of programs and of other nodes, which may hold characters that print nothing but change what is seen: directions,
// joiners, tags (the same as utf8_deceives() in src/base/utf8.h). They are shown as what they are: something that does not belong there.
const RAW = /[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|\udb40[\udc00-\udc7f]/g
const ESCAPED = /\\u(?:00ad|061c|200[b-f]|202[89a-e]|206[0-9a-f]|feff|db40\\udc[0-7][0-9a-f])/gi

/** A document of memoird, or of another node through it. */
export function parsePlain(json: string): unknown {
  return JSON.parse(json.replace(RAW, '\ufffd').replace(ESCAPED, '\\ufffd'))
}
