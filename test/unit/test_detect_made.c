/* All figures of the detector for series that a number stands for: who changes one of them sees it here, and what else it
 * changes. Whether the verdicts are right is the matter of test_detect_corpus and test_detect_limits. The series were chosen
 * from 1,200 so that every step of the computation counts in one of them. */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "ledger/detect.h"

enum { LOOKS_MAX = 400 };

struct made {
    size_t n;
    struct detect_point points[LOOKS_MAX];
    struct detect_options options;
    struct detect_ages ages;
};

/* How it behaves. Times are numbers of looks; 0: it does not do so at all. */
struct habits {
    uint64_t random;
    uint64_t n, from, until; /* it allocates between these */
    uint64_t every, taken;   /* units, each time */
    uint64_t noise;          /* more or less at random */
    uint64_t ramp;           /* 1: more and more, 2: less and less */
    uint64_t jump_at, jump;  /* once */
    uint64_t share, bulk,
        keeps;            /* frees hundredths of what it took; not at each look; from then on */
    uint64_t hump, churn; /* units that come and go each few looks; each look */
};

static uint64_t draw(struct habits *h, uint64_t below)
{
    h->random = hash_mix(h->random + HASH_K0);
    return h->random % below;
}

/* Most habits are absent in most series. */
static uint64_t seldom(struct habits *h, uint64_t of, uint64_t below)
{
    uint64_t number = draw(h, below);
    return draw(h, of) == 0 ? number : 0;
}

static struct habits habits_of(uint64_t number)
{
    struct habits h = {.random = number};
    h.n = 36 + (seldom(&h, 2, 5) ? draw(&h, LOOKS_MAX - 36) : 0);
    h.from = seldom(&h, 4, h.n);
    h.until = h.n - seldom(&h, 3, h.n / 2);
    h.every = 1 + seldom(&h, 2, h.n / 4);
    h.taken = 1 + draw(&h, 20);
    h.noise = seldom(&h, 3, 40);
    h.ramp = seldom(&h, 3, 3);
    h.jump_at = draw(&h, h.n);
    h.jump = seldom(&h, 5, 20 * h.n);
    h.share = seldom(&h, 2, 110);
    h.bulk = 1 + seldom(&h, 3, h.n / 2);
    h.keeps = seldom(&h, 4, h.n);
    h.hump = seldom(&h, 5, 100);
    h.churn = seldom(&h, 5, 200);
    return h;
}

static void look(struct habits *h, uint64_t i, uint64_t *owed, uint64_t *taken, uint64_t *freed)
{
    uint64_t more = 0, less = 0;
    if (i >= h->from && i < h->until && i % h->every == 0) {
        more = h->taken + (h->noise ? draw(h, h->noise) : 0);
        more = h->ramp == 1 ? more * i / 8 : h->ramp == 2 ? more * (h->n - i) / 8 : more;
    }
    if (h->keeps == 0 || i >= h->keeps)
        *owed += more * h->share;
    if (h->noise)
        *owed += draw(h, h->noise) * 50;
    if (i % h->bulk == 0) {
        less = *owed / 100;
        *owed %= 100;
    }
    if (i == h->jump_at)
        more += h->jump;
    more += h->churn + (i % 5 == 1 ? h->hump : 0);
    less += h->churn + (i % 5 == 4 ? h->hump : 0);
    *taken += more;
    *freed = *freed + less < *taken ? *freed + less : *taken;
}

static void make(uint64_t number, struct made *made)
{
    struct habits h = habits_of(number);
    uint64_t owed = 0, taken = seldom(&h, 4, 20000), freed = taken * draw(&h, 101) / 100;
    uint64_t unit = draw(&h, 10) ? 1000 : 0; /* or blocks of no bytes */
    uint64_t hole = seldom(&h, 6, h.n), time_ns = NS_PER_S;
    bool one_block = draw(&h, 10) == 0, level_only = draw(&h, 20) == 0;
    made->n = h.n;
    for (uint64_t i = 0; i < h.n; i++) {
        look(&h, i, &owed, &taken, &freed);
        time_ns += hole && i == hole ? h.n / 16 * NS_PER_S : NS_PER_S;
        uint64_t left = level_only ? 0 : freed;
        made->points[i] = (struct detect_point){
            .time_ns = time_ns,
            .alloc_bytes = (taken - (freed - left)) * unit,
            .freed_bytes = left * unit,
            .alloc_blocks = one_block ? i + 2 : taken,
            .freed_blocks = one_block ? i + 1 : freed,
        };
    }
    for (unsigned i = 0; i < DETECT_AGES; i++)
        made->ages.bytes[i] = draw(&h, 8);
    made->options = (struct detect_options){
        .needs_ns = seldom(&h, 2, 40) * NS_PER_S,
        .site_age_ns = seldom(&h, 2, 6 * h.n) * NS_PER_S,
        .collected = draw(&h, 8) == 0,
        .level_only = level_only,
        .ages = draw(&h, 3) ? NULL : &made->ages,
    };
}

/* Verdict, reason and confidence; bytes and blocks a second; both grown; rises, parts, z; times in ms since when it grows
 * and is quiet, the rate before, the largest fall; shares freed; no bytes, ages even; time watched and needed. */
static const char *figures(const struct detect_result *r, char text[static 512])
{
    snprintf(text, 512,
             "%s, %s: %.4f, %.5g B/s %.5g /s, %+" PRId64 " %+" PRId64 ", %u/%u z %.4f, %" PRIu64
             " %" PRIu64 " %.5g %" PRIu64 ", %.4f %.4f %d%d, %" PRIu64 "/%" PRIu64,
             detect_verdict_word(r->verdict), detect_reason_word(r->reason), r->confidence,
             r->bytes_per_s, r->blocks_per_s, r->grown_bytes, r->grown_blocks, r->rises, r->windows,
             r->z, r->since_ns / NS_PER_MS, r->quiet_ns / NS_PER_MS, r->rate_then, r->fall_bytes,
             r->freed_share, r->ever_freed, r->empty, r->ages_even, r->span_ns / NS_PER_MS,
             r->needs_ns / NS_PER_MS);
    return text;
}

static const struct {
    uint64_t number;
    const char *figures;
} known[] = {
    {3, "steady, churn: 0.8132, 1000 B/s 1 /s, "
        "+18000 +18, 9/18 z 1.9332, 38000 0 0 37000, 0.8444 0.7304 00, 36000/30000"},
    {5, "unknown yet, too short: 0.0000, 0 B/s 0 /s, "
        "+0 +0, 0/0 z 0.0000, 0 0 0 0, -1.0000 0.9706 00, 35000/38000"},
    {10, "leak, sustained: 0.8952, 30233 B/s 30.233 /s, "
         "+959000 +959, 16/18 z 5.7236, 2000 0 13000 0, 0.0021 0.0020 00, 35000/30000"},
    {15, "steady, one-off: 0.8389, 764.71 B/s 0.76471 /s, "
         "+26000 +26, 1/18 z 1.6711, 37000 29000 0 15000, 0.4286 0.4405 00, 36000/21000"},
    {21, "steady, idle: 0.9427, 0 B/s 0 /s, "
         "+0 +0, 0/18 z 0.0000, 207000 0 0 0, -1.0000 -1.0000 00, 217000/30000"},
    {22, "growing, one-off: 0.9500, 158.54 B/s 0.15854 /s, "
         "+52000 +52, 4/18 z 4.6499, 166000 0 0 0, 0.9387 0.5835 00, 421000/30000"},
    {24, "warming up, slowing: 0.7175, 13409 B/s 13.409 /s, "
         "+450000 +450, 10/18 z 5.5541, 2000 0 19050 0, 0.0343 0.3578 00, 36000/30000"},
    {35, "growing, resident size: 0.9500, 0 B/s 7.5 /s, "
         "+0 +240, 16/18 z 5.7236, 4000 0 5.625 0, -1.0000 -1.0000 10, 35000/30000"},
    {38, "growing, teeth: 0.9500, 3611.1 B/s 0 /s, "
         "+588000 +0, 10/18 z 5.1514, 200000 0 0 258000, 0.7289 0.7566 00, 140000/7000"},
    {40, "leak, sustained: 0.8967, 90538 B/s 90.538 /s, "
         "+9908000 +9908, 16/18 z 5.7574, 249000 0 80393 47000, 0.5838 0.6433 00, 120000/30000"},
    {52, "growing, load: 0.9500, 1938.8 B/s 0 /s, "
         "+573000 +0, 8/18 z 4.4739, 150000 0 0 0, 0.9893 0.9893 00, 294000/37000"},
    {63, "unknown yet, too short: 0.0000, 0 B/s 0 /s, "
         "+0 +0, 0/0 z 0.0000, 0 0 0 0, -1.0000 -1.0000 00, 35000/39000"},
    {72, "growing, one-off: 0.9500, 21600 B/s 21.6 /s, "
         "+1322000 +1322, 14/18 z 5.6817, 6000 0 14875 1000, 0.2123 0.2117 00, 35000/30000"},
    {73, "leak, sustained: 0.9200, 1000 B/s 1 /s, "
         "+129000 +129, 16/18 z 5.7574, 2000 0 1000 0, 0.1027 0.1020 00, 146000/13000"},
    {87, "growing, collected in bursts: 0.9500, 473.68 B/s 0.47368 /s, "
         "+60000 +60, 5/18 z 5.1577, 21000 0 240 98000, 0.9453 0.4795 00, 152000/21000"},
    {90, "steady, churn: 0.8111, 0 B/s 0 /s, "
         "-1000 -1, 1/18 z -1.6817, 36000 0 0 32000, 1.3269 1.0000 01, 35000/30000"},
    {106, "leak, sustained: 0.8752, 2333.3 B/s 2.3333 /s, "
          "+70000 +70, 5/18 z 5.0711, 6000 0 311.11 0, 0.0000 0.0000 01, 35000/30000"},
    {118, "growing, drift: 0.9500, 2294.1 B/s 2.2941 /s, "
          "+1411000 +1411, 6/18 z 3.9077, 173000 0 0 0, 0.9207 0.9210 01, 279000/12000"},
    {126, "leak, sustained: 0.8861, 6800 B/s 6.8 /s, "
          "+238000 +238, 17/18 z 5.7574, 2000 0 698.63 0, 0.8939 0.8596 00, 36000/30000"},
    {131, "leak, sustained: 0.8961, 6774.2 B/s 6.7742 /s, "
          "+238000 +238, 17/18 z 5.7574, 2000 0 7000 0, 0.0000 0.0000 00, 36000/30000"},
    {166, "warming up, stopped: 0.7148, 6750 B/s 6.75 /s, "
          "+202000 +202, 2/18 z 3.9064, 20000 11000 0 0, 0.0000 0.6789 01, 35000/30000"},
    {180, "growing, waits for a collection: 0.9500, 3000 B/s 3 /s, "
          "+85000 +85, 16/18 z 5.5301, 28000 0 3000 14000, 0.1619 0.1574 00, 35000/30000"},
    {200, "growing, load: 0.9500, 4409.1 B/s 0 /s, "
          "+154000 +0, 16/18 z 5.7574, 2000 0 1750 0, 0.9296 0.9313 01, 35000/30000"},
    {256, "steady, teeth: 0.9500, 236.02 B/s 0.23602 /s, "
          "+146000 +146, 8/18 z 2.2312, 344000 0 0 184000, 0.5780 0.5776 00, 362000/7000"},
    {271, "warming up, slowing: 0.7000, 10071 B/s 10.071 /s, "
          "+698000 +698, 15/18 z 5.6478, 37000 0 10875 5000, 0.1242 0.1272 00, 35000/35000"},
    {286, "steady, one-off: 0.9420, 181.82 B/s 0 /s, "
          "+531000 +0, 6/18 z 5.1974, 10000 90000 0 0, 0.1490 0.1659 00, 136000/19000"},
    {305, "warming up, slowing: 0.7148, 944.44 B/s 0.94444 /s, "
          "+31000 +31, 5/18 z 4.7122, 28000 0 1458.3 2000, 0.9860 0.9847 00, 35000/30000"},
    {318, "warming up, stopped: 0.8306, 14455 B/s 14.455 /s, "
          "+430000 +430, 15/18 z 5.3786, 34000 1000 14750 78000, 0.2702 0.7859 01, 35000/9000"},
    {328,
     "warming up, stopped: 0.9000, 81000 B/s 81 /s, "
     "+2607000 +2607, 12/18 z 5.4204, 37000 3000 1.3333e+05 106000, 0.2644 0.2574 00, 35000/4000"},
    {358, "warming up, slowing: 0.9000, 20601 B/s 20.601 /s, "
          "+11537000 +11537, 17/18 z 5.7574, 2000 0 59256 0, 0.1273 0.1271 00, 367000/9000"},
    {366, "growing, one block: 0.9500, 16889 B/s 0 /s, "
          "+572000 +0, 17/18 z 5.7574, 2000 0 18000 0, 0.0654 0.0635 00, 35000/30000"},
    {371, "growing, collected in bursts: 0.9500, 312.5 B/s 0 /s, "
          "+41000 +0, 7/18 z 4.2055, 56000 0 0 0, 0.9291 0.9291 00, 96000/30000"},
    {373, "leak, sustained: 0.8716, 250 B/s 0.25 /s, "
          "+13000 +13, 13/18 z 5.6221, 2000 0 238.1 0, 0.7544 0.7414 00, 57000/30000"},
    {379, "steady, churn: 0.8111, 384.62 B/s 0.38462 /s, "
          "+0 +0, 5/18 z 2.0568, 37000 0 0 26000, 1.0330 1.0000 00, 35000/30000"},
    {484, "steady, teeth: 0.8521, 750 B/s 0.75 /s, "
          "+22000 +22, 5/18 z 4.0208, 36000 0 0 7000, 0.7237 0.6484 00, 35000/17000"},
    {530, "warming up, stopped: 0.7148, 0 B/s 20 /s, "
          "+0 +600, 16/18 z 5.6478, 36000 3000 20 24, -1.0000 -1.0000 10, 35000/30000"},
    {542, "growing, collected in bursts: 0.9500, 15318 B/s 15.318 /s, "
          "+758000 +758, 17/18 z 5.7574, 218000 0 9690.7 736000, 0.9151 0.8831 00, 52000/13000"},
    {569, "leak, sustained: 0.8991, 138.89 B/s 0.13889 /s, "
          "+86000 +86, 12/18 z 5.2980, 56000 0 0 6000, 0.9844 0.9845 01, 234000/30000"},
    {662, "steady, shrinks: 0.8111, -9318.2 B/s -9.3182 /s, "
          "-325000 -325, 0/18 z -5.7574, 37000 0 0 329000, -1.0000 0.7645 00, 35000/30000"},
    {815, "leak, sustained: 0.8961, 5000 B/s 5 /s, "
          "+170000 +170, 17/18 z 5.7574, 2000 0 5000 0, 0.0000 0.6769 00, 36000/30000"},
    {892, "growing, one-off: 0.9500, 1177.4 B/s 0 /s, "
          "+220000 +0, 2/18 z 4.1392, 140000 0 0 9000, 0.0717 0.0695 00, 140000/35000"},
    {895, "warming up, stopped: 0.8333, 0 B/s 18.704 /s, "
          "+0 +2144, 14/18 z 5.4544, 233000 0 20.214 292, 0.3740 0.2619 10, 120000/30000"},
    {915, "warming up, stopped: 0.7565, 0 B/s 0 /s, "
          "+6000 +6, 4/18 z 3.2002, 42000 2000 0 0, 0.9551 0.9551 00, 54000/30000"},
    {916, "leak, sustained: 0.8700, 30538 B/s 30.538 /s, "
          "+8762000 +8762, 16/18 z 5.7574, 2000 0 44325 519000, 0.4802 0.4805 00, 288000/30000"},
    {929, "growing, collected in bursts: 0.9500, 100 B/s 0.1 /s, "
          "+10000 +10, 8/18 z 5.3278, 8000 0 190.91 0, 0.9465 0.9459 00, 93000/30000"},
    {964, "growing, frees late: 0.9500, 55395 B/s 55.395 /s, "
          "+3869000 +3869, 12/18 z 5.4441, 20000 0 1230.8 0, 0.0399 0.3892 00, 77000/30000"},
    {985, "warming up, stopped: 0.7148, 0 B/s 17 /s, "
          "+0 +612, 8/18 z 5.0756, 36000 3000 32.667 39, 0.3554 0.2481 10, 35000/30000"},
    {990, "growing, collected in bursts: 0.9500, 20000 B/s 0 /s, "
          "+844000 +0, 15/18 z 5.7574, 2000 0 24792 24000, 0.2000 0.2037 01, 35000/21000"},
    {1018, "leak, sustained: 0.8700, 1.4032e+05 B/s 140.32 /s, "
           "+43377000 +43377, 14/18 z 5.5648, 59000 0 0 0, 0.2951 0.2951 00, 336000/6000"},
    {1040, "leak, sustained: 0.9000, 1.3067e+05 B/s 130.67 /s, "
           "+29939000 +29939, 15/18 z 5.7574, 2000 0 36958 773000, 0.0830 0.0830 01, 242000/30000"},
    {1090, "growing, teeth: 0.9500, 8831.8 B/s 0 /s, "
           "+945000 +0, 7/18 z 4.5064, 151000 0 0 316000, -1.0000 -1.0000 00, 120000/30000"},
    {1095, "growing, slower now: 0.9500, 4119.3 B/s 4.1193 /s, "
           "+463000 +463, 16/18 z 5.7236, 2000 0 25546 0, 0.0000 0.1160 00, 130000/30000"},
};

static void every_figure_is_as_it_was(void **state)
{
    static struct made made;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        struct detect_result result;
        char text[512];
        make(known[i].number, &made);
        detect_judge(made.points, made.n, &made.options, &result);
        if (strcmp(figures(&result, text), known[i].figures) != 0)
            fail_msg("series %" PRIu64 ":\n%s\ninstead of\n%s", known[i].number, text,
                     known[i].figures);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_figure_is_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
