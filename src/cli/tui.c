/* The screen. See tui.h. */
#include "cli/tui.h"

#include <errno.h>
#include <limits.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/clock.h"
#include "cli/tui_terminal.h"

enum {
    PAIR_GOOD = 1,
    PAIR_WARN,
    PAIR_BAD,
    PAIR_BLUE,
    PAIR_CYAN,
    PAIR_MAGENTA,
    PAIR_HEADING,
    PAIR_ON, /* and seven that follow: black on each colour */
    ESCAPE_DELAY_MS = 25,
};
/* Two clicks at one place within this are a double one. */
#define DOUBLE_CLICK_NS (400 * NS_PER_MS)

static SCREEN *screen;
static volatile sig_atomic_t ended; /* the signal */
static volatile sig_atomic_t resized;
static volatile sig_atomic_t stopping; /* Ctrl-Z */
static sigset_t mask_before;
static bool colored;
static struct tui_mouse mouse;
static uint64_t clicked_ns; /* when the last single click was */

static void on_end(int number)
{
    ended = number;
}

static void on_resize(int number)
{
    resized = 1;
}

static void on_stop(int number)
{
    stopping = 1;
}

int tui_signal(void)
{
    return ended;
}

static void learn_size(struct term *term)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row) {
        resizeterm(size.ws_row, size.ws_col);
    }
    term->width = (unsigned)COLS;
    term->height = (unsigned)LINES;
}

/* Signals are taken only in tui_wait(), so none comes while something is half drawn. */
static void take_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        sigaddset(&signals, ends[i]);
        sigaction(ends[i], &(struct sigaction){.sa_handler = on_end}, NULL);
    }
    sigaddset(&signals, SIGTSTP);
    sigaddset(&signals, SIGWINCH);
    sigaction(SIGWINCH, &(struct sigaction){.sa_handler = on_resize}, NULL);
    sigprocmask(SIG_BLOCK, &signals, &mask_before);
}

/* Before there is a screen: ncurses leaves the signal alone where it has a handler already. Its own one is switched off
 * while it draws, so that Ctrl-Z would be lost now and then. */
static void take_stop(void)
{
    struct sigaction before;
    if (sigaction(SIGTSTP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGTSTP, &(struct sigaction){.sa_handler = on_stop}, NULL);
}

static void leave_stop(void)
{
    struct sigaction now;
    if (sigaction(SIGTSTP, NULL, &now) == 0 && now.sa_handler == on_stop)
        sigaction(SIGTSTP, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

/* Give the terminal back, stand still, and take it again. */
static void stop(struct term *term)
{
    sigset_t mask;
    stopping = 0;
    endwin();
    leave_stop();
    sigprocmask(SIG_SETMASK, &mask_before, &mask);
    raise(SIGTSTP);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    take_stop();
    learn_size(term);
    clear();
}

int tui_start(struct term *term, enum term_color color)
{
    term_init(term, STDOUT_FILENO, color);
    if (!term->tty || !isatty(STDIN_FILENO))
        return -ENOTTY;
    if (!tui_terminal_usable(STDOUT_FILENO))
        return -ENOTTY;
    take_stop();
    screen = newterm(NULL, stdout, stdin);
    if (!screen) {
        leave_stop();
        return -ENOTTY;
    }
    take_signals();
    atexit(tui_stop);
    set_escdelay(ESCAPE_DELAY_MS);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    term->color = term->color && has_colors();
    if (term->color) {
        start_color();
        short background = use_default_colors() == OK ? -1 : COLOR_BLACK;
        init_pair(PAIR_GOOD, COLOR_GREEN, background);
        init_pair(PAIR_WARN, COLOR_YELLOW, background);
        init_pair(PAIR_BAD, COLOR_RED, background);
        init_pair(PAIR_BLUE, COLOR_BLUE, background);
        init_pair(PAIR_CYAN, COLOR_CYAN, background);
        init_pair(PAIR_MAGENTA, COLOR_MAGENTA, background);
        init_pair(PAIR_HEADING, COLOR_BLACK, COLOR_GREEN);
        for (short on = COLOR_RED; on <= COLOR_WHITE; on++)
            init_pair((short)(PAIR_ON + on), COLOR_BLACK, on);
    }
    colored = term->color;
    learn_size(term);
    return 0;
}

void tui_stop(void)
{
    if (!screen)
        return;
    endwin();
    delscreen(screen);
    screen = NULL;
    leave_stop();
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
}

/* ---- drawing ---- */

/* The sequences of term_style() and term_plain(), as attributes. */
static attr_t attribute_of(const char *sequence, size_t len)
{
    static const struct {
        const char *sequence;
        attr_t attribute;
    } known[] = {
        {"\033[0m", A_NORMAL},
        {"\033[1m", A_BOLD},
        {"\033[2m", A_DIM},
        {"\033[32m", COLOR_PAIR(PAIR_GOOD)},
        {"\033[33m", COLOR_PAIR(PAIR_WARN)},
        {"\033[1;31m", COLOR_PAIR(PAIR_BAD) | A_BOLD},
        {"\033[34m", COLOR_PAIR(PAIR_BLUE)},
        {"\033[36m", COLOR_PAIR(PAIR_CYAN)},
        {"\033[35m", COLOR_PAIR(PAIR_MAGENTA)},
        {"\033[7;1m", A_REVERSE | A_BOLD},
        {"\033[30;41m", COLOR_PAIR(PAIR_ON + COLOR_RED)},
        {"\033[30;42m", COLOR_PAIR(PAIR_ON + COLOR_GREEN)},
        {"\033[30;43m", COLOR_PAIR(PAIR_ON + COLOR_YELLOW)},
        {"\033[30;44m", COLOR_PAIR(PAIR_ON + COLOR_BLUE)},
        {"\033[30;45m", COLOR_PAIR(PAIR_ON + COLOR_MAGENTA)},
        {"\033[30;46m", COLOR_PAIR(PAIR_ON + COLOR_CYAN)},
        {"\033[30;47m", COLOR_PAIR(PAIR_ON + COLOR_WHITE)},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i].sequence) == len && memcmp(known[i].sequence, sequence, len) == 0)
            return known[i].attribute;
    return A_NORMAL;
}

static attr_t base_of(enum tui_mark mark)
{
    if (mark == TUI_HEADING) /* without colours it must differ from what is chosen */
        return colored ? COLOR_PAIR(PAIR_HEADING) : A_BOLD | A_UNDERLINE;
    return mark == TUI_MARKED ? A_REVERSE : A_NORMAL;
}

void tui_line(const struct term *term, unsigned row, const char *text, size_t len,
              enum tui_mark mark)
{
    unsigned at = 0;
    const char *end = text + len;
    mbstate_t state = {0};
    attr_t base = base_of(mark);
    attrset((int)base);
    move((int)row, 0);
    clrtoeol();
    while (text < end) {
        if (*text == '\033') {
            const char *stop = memchr(text, 'm', (size_t)(end - text));
            size_t n = stop ? (size_t)(stop - text) + 1 : (size_t)(end - text);
            attrset((int)(attribute_of(text, n) | base));
            text += n;
            continue;
        }
        wchar_t c;
        size_t n = mbrtowc(&c, text, (size_t)(end - text), &state);
        if (n == 0 || n > (size_t)(end - text))
            break;
        int width = wcwidth(c);
        if (width < 0 || at + (unsigned)width > term->width)
            break;
        addnstr(text, (int)n);
        at += (unsigned)width;
        text += n;
    }
    attrset((int)base);
    while (mark != TUI_PLAIN && at++ < term->width)
        addch(' ');
    attrset(A_NORMAL);
}

void tui_show(void)
{
    refresh();
}

/* ---- mouse and keys ---- */

void tui_mouse_on(void)
{
    mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED, NULL);
    mouseinterval(0); /* else every click waits for a second one */
}

struct tui_mouse tui_mouse(void)
{
    return mouse;
}

/* false: no sequence that was asked for. */
static bool mouse_take(void)
{
    MEVENT event;
    if (getmouse(&event) != OK || event.x < 0 || event.y < 0)
        return false;
    struct tui_mouse now = {.row = (unsigned)event.y, .column = (unsigned)event.x};
    if (event.bstate & BUTTON4_PRESSED) {
        now.what = TUI_WHEEL_UP;
    } else if (event.bstate & BUTTON5_PRESSED) {
        now.what = TUI_WHEEL_DOWN;
    } else if (event.bstate & BUTTON1_PRESSED) {
        uint64_t now_ns = clock_monotonic_ns();
        bool again = clicked_ns && now_ns - clicked_ns < DOUBLE_CLICK_NS && mouse.row == now.row &&
                     mouse.column == now.column;
        now.what = again ? TUI_DOUBLE_CLICK : TUI_CLICK;
        clicked_ns = again ? 0 : now_ns;
    } else {
        return false;
    }
    mouse = now;
    return true;
}

static int key_of(int c)
{
    switch (c) {
    case KEY_UP:
        return TUI_UP;
    case KEY_DOWN:
        return TUI_DOWN;
    case KEY_PPAGE:
        return TUI_PAGE_UP;
    case KEY_NPAGE:
        return TUI_PAGE_DOWN;
    case KEY_HOME:
        return TUI_HOME;
    case KEY_END:
        return TUI_LAST;
    case KEY_LEFT:
        return TUI_LEFT;
    case KEY_RIGHT:
        return TUI_RIGHT;
    case KEY_ENTER:
    case '\r':
    case '\n':
        return TUI_ENTER;
    case KEY_BACKSPACE:
    case 127:
    case '\b':
        return TUI_ERASE;
    case 27:
        return TUI_BACK;
    case KEY_MOUSE:
        return mouse_take() ? TUI_MOUSE : TUI_NONE;
    default:
        return c > 0 && c < 256 ? c : TUI_NONE;
    }
}

int tui_wait(struct term *term, uint64_t timeout_ns)
{
    uint64_t deadline_ns = clock_monotonic_ns() + timeout_ns;
    for (;;) {
        int c = getch();
        int key = c == ERR || c == KEY_RESIZE ? TUI_NONE : key_of(c);
        if (key != TUI_NONE)
            return key;
        if (c != ERR)
            continue;
        uint64_t now_ns = clock_monotonic_ns();
        uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        struct timespec left = {(time_t)(left_ns / NS_PER_S), (long)(left_ns % NS_PER_S)};
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        int n = ppoll(&input, 1, &left, &mask_before);
        if (ended || (n > 0 && input.revents & (POLLHUP | POLLERR | POLLNVAL)))
            return TUI_END;
        if (stopping) {
            stop(term);
            return TUI_RESIZED;
        }
        if (resized) {
            resized = 0;
            learn_size(term);
            clear();
            return TUI_RESIZED;
        }
        if (n == 0)
            return TUI_NONE;
    }
}
