// A colour for a name: the same name has the same one everywhere, also tomorrow.

export const NAME_COLOURS = 6

/** 1 to NAME_COLOURS, the number of a --flame- colour. */
export function nameColour(name: string): number {
  let hash = 2166136261
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619)
  return ((hash >>> 16) % NAME_COLOURS) + 1
}
