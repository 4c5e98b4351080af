/** Rows of ages become rows of sizes. */
export function transposed(byAge: number[][], sizes: number): number[][] {
  return Array.from({ length: sizes }, (_, size) => byAge.map((row) => row[size] ?? 0))
}
