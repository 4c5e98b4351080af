/* Charts of characters. See chart.h. */
#include "cli/chart.h"

#include "base/buffer.h"

enum {
    BRAILLE = 0x2800,
    BRAILLE_DOTS = 4, /* in a column, from top to bottom */
    ASCII_LEVELS = 2,
};

unsigned chart_density(const struct term *term)
{
    return term->utf8 ? 2 : 1;
}

/* Dots from the bottom up. */
static unsigned height(double point, unsigned dots)
{
    if (point <= 0)
        return 0;
    unsigned n = point >= 1 ? dots : (unsigned)(point * dots + 0.5);
    return n ? n : 1;
}

/* How many of the dots of this line are on. */
static unsigned within(unsigned total, unsigned rows, unsigned row, unsigned dots)
{
    unsigned below = (rows - 1 - row) * dots;
    unsigned n = total > below ? total - below : 0;
    return n < dots ? n : dots;
}

static void braille(struct buffer *out, unsigned left, unsigned right)
{
    /* Bits of the dots, from the bottom up. */
    static const unsigned char columns[2][BRAILLE_DOTS] = {{0x40, 0x04, 0x02, 0x01},
                                                           {0x80, 0x20, 0x10, 0x08}};
    unsigned c = BRAILLE;
    for (unsigned i = 0; i < left; i++)
        c |= columns[0][i];
    for (unsigned i = 0; i < right; i++)
        c |= columns[1][i];
    if (c == BRAILLE) {
        buffer_append_char(out, ' '); /* not every font has a blank one */
        return;
    }
    char text[4] = {(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 0x3f)),
                    (char)(0x80 | (c & 0x3f))};
    buffer_append(out, text, 3);
}

void chart_append_row(const struct term *term, struct buffer *out, const double *points,
                      unsigned columns, unsigned rows, unsigned row)
{
    for (unsigned c = 0; c < columns; c++) {
        if (!term->utf8) {
            unsigned n = within(height(points[c], rows * ASCII_LEVELS), rows, row, ASCII_LEVELS);
            buffer_append_char(out, " .#"[n]);
            continue;
        }
        unsigned left = height(points[2 * c], rows * BRAILLE_DOTS);
        unsigned right = height(points[2 * c + 1], rows * BRAILLE_DOTS);
        braille(out, within(left, rows, row, BRAILLE_DOTS), within(right, rows, row, BRAILLE_DOTS));
    }
}
