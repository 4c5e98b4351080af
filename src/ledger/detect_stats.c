/* Statistics that do not mind a few wild values. See detect.h. */
#include <math.h>
#include <stdbool.h>

#include "ledger/detect.h"

enum { PAIRS_MAX = DETECT_WINDOWS * (DETECT_WINDOWS - 1) / 2 };

/* The k-th smallest; those before it are no larger, those after it no smaller (Hoare). */
static double pick(double *values, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        double middle = values[(low + high) / 2];
        size_t i = low, j = high;
        while (i <= j) {
            while (values[i] < middle)
                i++;
            while (values[j] > middle)
                j--;
            if (i > j)
                break;
            double kept = values[i];
            values[i++] = values[j];
            values[j] = kept;
            if (j == 0)
                break;
            j--;
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return values[k];
}

static double median(double *values, size_t n)
{
    double upper = pick(values, n, n / 2), lower = values[0];
    if (n % 2)
        return upper;
    for (size_t i = 0; i < n / 2; i++)
        lower = values[i] > lower ? values[i] : lower;
    return (lower + upper) / 2;
}

/* Each value that comes t times lowers the variance of the score by t(t-1)(2t+5)/18. */
static double tied(const double *values, size_t n)
{
    double less = 0;
    for (size_t i = 0; i < n; i++) {
        double t = 0;
        bool first = true;
        for (size_t k = 0; k < n; k++) {
            if (values[k] != values[i])
                continue;
            first = first && k >= i;
            t++;
        }
        if (first)
            less += t * (t - 1) * (2 * t + 5);
    }
    return less;
}

double detect_mann_kendall(const double *values, size_t n)
{
    double score = 0, count = (double)n;
    if (n < 3)
        return 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            score += (values[k] > values[i]) - (values[k] < values[i]);
    double variance = (count * (count - 1) * (2 * count + 5) - tied(values, n)) / 18;
    if (variance <= 0 || score == 0)
        return 0;
    return (score > 0 ? score - 1 : score + 1) / sqrt(variance);
}

double detect_theil_sen(const double *times, const double *values, size_t n)
{
    double slopes[PAIRS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n && count < PAIRS_MAX; k++)
            if (times[k] != times[i])
                slopes[count++] = (values[k] - values[i]) / (times[k] - times[i]);
    if (count == 0)
        return 0;
    return median(slopes, count);
}
