/* A shop that knows nothing of memoir, for `memoir run`: it keeps a catalogue, a cache that fills and stays, and
 * sessions that come and go; and it forgets the receipt of every order, which makes 3 MB a minute. One line of it
 * leaks. That is capped, so that a demo that was left alone stays a demo. With --careful it frees its receipts. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ORDERS_A_SECOND = 100,
    RECEIPT_BYTES = 500,
    RECEIPTS_MAX = 400000, /* 200 MB after an hour */
    CATALOGUE = 2000,
    CACHE = 512,
    SESSIONS = 64,
};

struct session {
    unsigned customer;
    char *basket;
};

static char *catalogue[CATALOGUE], *cache[CACHE];
static struct session *sessions[SESSIONS];
static volatile sig_atomic_t closing;

static void close_shop(int number)
{
    closing = 1;
}

static char *text_of(size_t bytes, const char *what, unsigned number)
{
    char *text = malloc(bytes);
    if (!text)
        exit(1);
    snprintf(text, bytes, "%s %u", what, number);
    return text;
}

static void catalogue_load(void)
{
    for (unsigned i = 0; i < CATALOGUE; i++)
        catalogue[i] = text_of(200, "article", i);
}

/* Pages that customers look at often; full after a while. */
static const char *page_get(unsigned article)
{
    char **page = &cache[article % CACHE];
    if (!*page)
        *page = text_of(2000, "page of article", article);
    return *page;
}

static struct session *session_begin(unsigned customer)
{
    struct session *session = malloc(sizeof(*session));
    if (!session)
        exit(1);
    session->customer = customer;
    session->basket = text_of(1000, "basket of customer", customer);
    return session;
}

static void session_end(struct session *session)
{
    if (!session)
        return;
    free(session->basket);
    free(session);
}

/* The mistake: the caller has to free the receipt, and does not. */
static char *receipt_print(unsigned order)
{
    char *receipt = malloc(RECEIPT_BYTES);
    if (receipt)
        snprintf(receipt, RECEIPT_BYTES, "receipt of order %u: %s", order,
                 catalogue[order % CATALOGUE]);
    return receipt;
}

static void order_take(unsigned order, bool careful)
{
    struct session **place = &sessions[order % SESSIONS];
    session_end(*place);
    *place = session_begin(order);
    memcpy((*place)->basket, page_get(order * 7919), 20);
    if (careful)
        free(receipt_print(order));
    else if (order < RECEIPTS_MAX)
        receipt_print(order);
}

int main(int argc, char **argv)
{
    bool careful = argc > 1 && strcmp(argv[1], "--careful") == 0;
    struct sigaction action = {.sa_handler = close_shop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    catalogue_load();
    const struct timespec pause = {0, 1000000000 / ORDERS_A_SECOND};
    for (unsigned order = 0; !closing; order++) {
        order_take(order, careful);
        nanosleep(&pause, NULL);
    }
    return 0;
}
