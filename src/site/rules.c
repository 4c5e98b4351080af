/* Making, keeping and dropping cached unwind rules. This is the slow side; the walk in unwind.c only
 * comes here for addresses it has not seen. */
#include "site/rules.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"

/* ---- modules ---- */

/* What makes an unloadable module itself. */
struct identity {
    struct module_object object;
    uint64_t id_at;
    uint32_t id_len;
    uint64_t id[3];
};

enum { FIRST_PAGE = 4096 };

static void id_load(const uint8_t *at, size_t len, uint64_t id[3])
{
    memset(id, 0, 3 * sizeof(id[0]));
    memcpy(id, at, len < 24 ? len : 24);
}

static int identity_of(const struct module_object *object, struct identity *ret_identity)
{
    const uint8_t *id;
    size_t len;
    if (module_build_id_find(object, &id, &len) < 0)
        return -ENOENT;
    struct identity identity = {.object = *object, .id_len = (uint32_t)len};
    id_load(id, len, identity.id);
    /* The first page of whatever is mapped there later is readable too; another place may not be, so
     * elsewhere (some tools move notes to the end) it is looked for each time. */
    if ((uintptr_t)id - object->map_start + len <= FIRST_PAGE)
        identity.id_at = (uintptr_t)id;
    *ret_identity = identity;
    return 0;
}

/* A consistent copy of an entry; false if it is unused or being written. */
static bool module_read(const struct unwind_module *m, struct unwind_module *copy)
{
    uint32_t seq = load_acquire(&m->seq);
    if (seq == 0 || seq & 1)
        return false;
    copy->seq = seq;
    copy->id_len = load_acquire(&m->id_len);
    copy->map_start = load_acquire(&m->map_start);
    copy->map_end = load_acquire(&m->map_end);
    copy->eh_frame_hdr = load_acquire(&m->eh_frame_hdr);
    copy->id_at = load_acquire(&m->id_at);
    for (int i = 0; i < 3; i++)
        copy->id[i] = load_acquire(&m->id[i]);
    return load_relaxed(&m->seq) == seq;
}

static bool module_is_at(const struct unwind_module *m, const struct module_object *object)
{
    return m->map_start == object->map_start && m->map_end == object->map_end &&
           m->eh_frame_hdr == (uintptr_t)object->eh_frame_hdr;
}

static uint64_t module_identity(unsigned module, uint32_t seq)
{
    return hash_combine(module, seq) | 1;
}

bool rule_module_verify(const struct unwind_cache *cache, unsigned module, uintptr_t pc,
                        uint64_t *ret_identity)
{
    struct unwind_module m;
    struct module_object object;
    uint64_t id[3];
    if (!module_read(&cache->modules[module - 1], &m) || module_object_find(pc, &object) < 0 ||
        !module_is_at(&m, &object))
        return false;
    if (m.id_at != 0) {
        id_load((const uint8_t *)m.id_at, m.id_len, id);
    } else {
        const uint8_t *at;
        size_t len;
        if (module_build_id_find(&object, &at, &len) < 0 || len != m.id_len)
            return false;
        id_load(at, len, id);
    }
    if (memcmp(id, m.id, sizeof(id)) != 0)
        return false;
    *ret_identity = module_identity(module, m.seq);
    return true;
}

/* Drop all rules of one module. */
static void rules_purge(struct unwind_cache *cache, unsigned module)
{
    for (size_t set = 0; set < UNWIND_SETS; set++) {
        for (size_t way = 0; way < UNWIND_WAYS; way++) {
            uint64_t word = load_seq_cst(&cache->rules[set][way]);
            if (word != 0 && rule_module((uint32_t)(word & RULE_MASK)) == module)
                cas_relaxed(&cache->rules[set][way], &word, 0);
        }
    }
    fetch_add_relaxed(&cache->modules_purged, 1);
}

/* Take an entry for a module; 0 on success. Whoever comes second does without. */
static int module_claim(struct unwind_cache *cache, unsigned module,
                        const struct identity *identity, uint32_t *ret_seq)
{
    struct unwind_module *m = &cache->modules[module - 1];
    uint32_t seq = load_relaxed(&m->seq);
    /* Sequentially consistent here, in rules_purge() and in rule_store(): a thread that stores a rule
     * for the old owner checks seq afterwards, so either it sees that it is too late, or the purge
     * sees its rule. */
    if (seq & 1 || !__atomic_compare_exchange_n(&m->seq, &seq, seq + 1, false, __ATOMIC_SEQ_CST,
                                                __ATOMIC_RELAXED))
        return -EBUSY;
    if (seq != 0)
        rules_purge(cache, module);
    store_release(&m->id_len, identity->id_len);
    store_release(&m->map_start, identity->object.map_start);
    store_release(&m->map_end, identity->object.map_end);
    store_release(&m->eh_frame_hdr, (uintptr_t)identity->object.eh_frame_hdr);
    store_release(&m->id_at, identity->id_at);
    for (int i = 0; i < 3; i++)
        store_release(&m->id[i], identity->id[i]);
    store_release(&m->seq, seq + 2);
    *ret_seq = seq + 2;
    return 0;
}

/* The number for a module: the one it has, a free one, or that of a module that is gone. */
static int module_number(struct unwind_cache *cache, const struct identity *identity,
                         unsigned *ret_module, uint32_t *ret_seq)
{
    struct unwind_module m;
    unsigned unused = 0;
    for (unsigned i = 1; i <= UNWIND_MODULES_MAX; i++) {
        if (module_read(&cache->modules[i - 1], &m)) {
            if (module_is_at(&m, &identity->object) && m.id_len == identity->id_len &&
                memcmp(m.id, identity->id, sizeof(m.id)) == 0) {
                *ret_module = i;
                *ret_seq = m.seq;
                return 0;
            }
        } else if (load_relaxed(&cache->modules[i - 1].seq) == 0) {
            unused = i; /* numbers are taken in order: nothing follows */
            break;
        }
    }
    for (unsigned i = 1; unused == 0 && i <= UNWIND_MODULES_MAX; i++) {
        uint64_t known;
        if (module_read(&cache->modules[i - 1], &m) &&
            !rule_module_verify(cache, i, m.map_start, &known))
            unused = i;
    }
    if (unused == 0)
        return -ENOSPC;
    *ret_module = unused;
    return module_claim(cache, unused, identity, ret_seq);
}

/* May rules of this module be kept, and under which number? */
static bool module_cacheable(struct unwind_cache *cache, const struct module_object *object,
                             unsigned *ret_module, uint32_t *ret_seq)
{
    struct identity identity;
    *ret_module = 0;
    *ret_seq = 0;
    if (!cache)
        return false;
    if (module_object_permanent(object))
        return true;
    return identity_of(object, &identity) == 0 &&
           module_number(cache, &identity, ret_module, ret_seq) == 0;
}

uint64_t rule_source_identity(const struct rule_source *source)
{
    return module_identity(source->module, source->seq);
}

uint64_t rule_identity_find(struct unwind_cache *cache, uintptr_t pc)
{
    struct module_object object;
    unsigned module;
    uint32_t seq;
    if (module_object_find(pc, &object) < 0 || !module_cacheable(cache, &object, &module, &seq))
        return UINT64_MAX;
    return module == 0 ? 0 : module_identity(module, seq);
}

/* ---- rules ---- */

static void rule_store(struct unwind_cache *cache, uintptr_t pc, uint32_t rule,
                       const struct rule_source *source)
{
    size_t place;
    uint64_t tag;
    if (!rule_place(pc, &place, &tag))
        return;
    uint64_t *set = cache->rules[place];
    /* A full set gives up any entry; the count of misses is as good as a die. */
    unsigned victim = load_relaxed(&cache->misses) % UNWIND_WAYS;
    for (unsigned way = 0; way < UNWIND_WAYS; way++) {
        uint64_t old = load_relaxed(&set[way]);
        if (old == 0 || old >> RULE_BITS == tag) {
            victim = way;
            break;
        }
    }
    uint64_t word = tag << RULE_BITS | (uint64_t)source->module << RULE_MODULE_AT | rule;
    if (source->module == 0) {
        store_relaxed(&set[victim], word);
        return;
    }
    store_seq_cst(&set[victim], word);
    /* If the module's number went to another one meanwhile, take the rule back: module_claim(). */
    if (load_seq_cst(&cache->modules[source->module - 1].seq) != source->seq)
        cas_relaxed(&set[victim], &word, 0);
}

/* CFA = *(fp - n): what compilers write for a function that realigned its stack. */
static bool matches_fp_deref(const uint8_t *e, size_t len, uintptr_t *ret_offset)
{
    struct cfi_cursor c = {.at = e, .end = e + len};
    uint64_t n = cfi_read_uleb(&c);
    if (c.bad || n > (size_t)(c.end - c.at))
        return false;
    c.end = c.at + n;
    if (cfi_read_fixed(&c, 1) != 0x70 + ARCH_REG_FP)
        return false;
    int64_t offset = cfi_read_sleb(&c);
    if (cfi_read_fixed(&c, 1) != 0x06 || c.bad || c.at != c.end || offset > 0 ||
        offset < -INT32_MAX)
        return false;
    *ret_offset = (uintptr_t)-offset;
    return true;
}

/* A procedure linkage table: CFA = sp + 8 + ((pc & 15) >= n) * 8. The address being known, this is a
 * plain offset. */
static bool matches_plt(const uint8_t *e, size_t len, uintptr_t pc, uintptr_t *ret_offset)
{
    static const uint8_t pattern[] = {11,   0x77, 8,    0x80, 0,    0x3f,
                                      0x1a, 0x30, 0x2a, 0x33, 0x24, 0x22};
    if (!ARCH_RA_BELOW_CFA || len < sizeof(pattern))
        return false;
    for (size_t i = 0; i < sizeof(pattern); i++)
        if (i == 7 ? e[i] < 0x30 || e[i] > 0x3f : e[i] != pattern[i])
            return false;
    *ret_offset = 8 + ((pc & 15) >= (uintptr_t)(e[7] - 0x30) ? 8 : 0);
    return true;
}

/* Base and offset of the CFA; false if it is none of the common forms. */
static bool compress_cfa(const struct cfi_section *s, const struct cfi_row *row, uintptr_t pc,
                         unsigned *ret_base, uintptr_t *ret_offset)
{
    if (row->cfa_is_expression) {
        const uint8_t *e = s->lo + row->cfa_value;
        size_t len = (size_t)(s->hi - e);
        if (matches_fp_deref(e, len, ret_offset)) {
            *ret_base = RULE_FP_DEREF;
            return true;
        }
        *ret_base = RULE_SP;
        return matches_plt(e, len, pc, ret_offset);
    }
    if (row->cfa_value <= 0)
        return false;
    *ret_offset = (uintptr_t)row->cfa_value;
    *ret_base = row->cfa_reg == ARCH_REG_SP ? RULE_SP : RULE_FP;
    return row->cfa_reg == ARCH_REG_SP || row->cfa_reg == ARCH_REG_FP;
}

/* fp is at *(fp): an expression "breg FP 0". */
static bool matches_fp_at_fp(const struct cfi_section *s, int32_t at)
{
    const uint8_t *e = s->lo + at;
    return s->hi - e >= 3 && e[0] == 2 && e[1] == 0x70 + ARCH_REG_FP && e[2] == 0;
}

static bool compress_fp(const struct cfi_section *section, const struct cfi_row *row,
                        unsigned *ret_fp)
{
    int32_t value = row->value[ARCH_REG_FP];
    switch (row->how[ARCH_REG_FP]) {
    case CFI_SAME:
    case CFI_UNDEFINED:
        *ret_fp = RULE_FP_SAME;
        return true;
    case CFI_OFFSET:
        *ret_fp = (unsigned)(-value / 8);
        return value <= -16 && value % 8 == 0 && *ret_fp < 1u << ARCH_FP_BITS;
    case CFI_EXPRESSION:
        *ret_fp = RULE_FP_AT_FP;
        return matches_fp_at_fp(section, value);
    default:
        return false;
    }
}

/* Is the return address where rules take it to be? */
static bool ra_is_usual(const struct cfi_row *row)
{
    if (row->ra_reg != ARCH_REG_RA || row->how[ARCH_REG_RA] != CFI_OFFSET)
        return false;
    if (ARCH_RA_BELOW_CFA)
        return row->value[ARCH_REG_RA] == -(int32_t)sizeof(uintptr_t);
    return row->how[ARCH_REG_FP] == CFI_OFFSET &&
           row->value[ARCH_REG_RA] == row->value[ARCH_REG_FP] + (int32_t)sizeof(uintptr_t);
}

static uint32_t special(enum rule_special kind)
{
    return RULE_SPECIAL | (uint32_t)kind << RULE_FP_AT;
}

uint32_t rule_compress(const struct cfi_section *section, const struct cfi_row *row, uintptr_t pc)
{
    unsigned base, fp;
    uintptr_t offset;
    if (row->how[row->ra_reg] == CFI_UNDEFINED)
        return special(RULE_END);
    bool sp_is_cfa = row->how[ARCH_REG_SP] == CFI_SAME ||
                     (row->how[ARCH_REG_SP] == CFI_VAL_OFFSET && row->value[ARCH_REG_SP] == 0);
    if (row->signal_frame || !sp_is_cfa || !ra_is_usual(row) ||
        !compress_cfa(section, row, pc, &base, &offset) || !compress_fp(section, row, &fp))
        return special(RULE_FULL);
    if ((offset & ~RULE_CFA_MASK) != 0 || (offset == 0 && base != RULE_FP_DEREF))
        return special(RULE_FULL);
    return base | (uint32_t)offset | fp << RULE_FP_AT;
}

int rule_source_find(struct unwind_cache *cache, uintptr_t pc, struct rule_source *ret_source)
{
    struct rule_source *s = ret_source;
    int r = module_object_find(pc, &s->object);
    if (r < 0)
        return r;
    if (!s->object.eh_frame_hdr)
        return -ENOENT;
    s->section.hdr = s->object.eh_frame_hdr;
    s->section.shift = 0;
    r = module_segment_find(&s->object, (uintptr_t)s->section.hdr, &s->section.lo, &s->section.hi);
    if (r < 0)
        return r;
    r = cfi_find(&s->section, pc, &s->row);
    if (r < 0)
        return r;
    s->cacheable = module_cacheable(cache, &s->object, &s->module, &s->seq);
    return 0;
}

uint32_t rule_make(struct unwind_cache *cache, uintptr_t pc, const struct rule_source *source)
{
    uint32_t rule = rule_compress(&source->section, &source->row, pc);
    if (!cache)
        return rule;
    fetch_add_relaxed(&cache->misses, 1);
    if (source->cacheable)
        rule_store(cache, pc, rule, source);
    else
        fetch_add_relaxed(&cache->uncached, 1);
    return rule;
}
