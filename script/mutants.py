"""Mutants of a C file, all compiled into one object (used by script/mutate).

Every place with mutants becomes a choice: `a < b` is written as

    (MUTANT(7, ...) ? (a <= b) : MUTANT(8, ...) ? (a >= b) : a < b)

so that one build holds all mutants and the environment variable MUTANT=FILE:NUMBER switches one on. Only one is
on at a time: the branches hold the plain text, and nesting does not multiply the size of the code.

The parser relies on clang-format: binary operators have spaces on both sides, unary ones do not.
"""
import bisect
import collections
import re

# number: within the file, from 1. line: of the operator or statement. begin, end: its extent in the text.
# before, after: the texts in one line. function: where it stands. text: the line.
Mutant = collections.namedtuple("Mutant", "file number line begin end function operator before after statement text")

SWAPS = {
    "==": ("negate", ["!="]), "!=": ("negate", ["=="]),
    "<": ("boundary", ["<=", ">="]), "<=": ("boundary", ["<"]),
    ">": ("boundary", [">=", "<="]), ">=": ("boundary", [">"]),
    "&&": ("logic", ["||"]), "||": ("logic", ["&&"]),
    "+": ("arithmetic", ["-"]), "-": ("arithmetic", ["+"]), "*": ("arithmetic", ["/"]), "/": ("arithmetic", ["*"]),
}
ASSIGNS = {"+=": ["-=", "="], "-=": ["+=", "="], "|=": ["="], "&=": ["="]}
LEVELS = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"],
          ["*", "/", "%"]]
LEVEL = {text: level for level, texts in enumerate(LEVELS) for text in texts}
ASSIGNMENT = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
KEYWORDS = {"return", "case", "else", "do", "goto", "if", "for", "while", "switch", "sizeof", "break", "continue",
            "default", "static", "struct", "union", "enum", "typedef", "const", "extern"}
HEADS = {"if", "for", "while", "switch"}
CONSTANT_CALLS = {"sizeof", "_Alignof", "alignof", "typeof", "__typeof__", "offsetof", "_Static_assert",
                  "static_assert", "assert", "__attribute__", "_Generic", "__asm__", "asm",
                  "__builtin_constant_p", "__builtin_types_compatible_p", "__builtin_choose_expr"}
# Calls whose absence shows in other lanes (leaks, descriptors) or only in a log.
KEPT_CALLS = re.compile(r"(?:\w*free|close|\w*_close|log_\w+|json_\w+|va_end|va_start)$")
TOKEN = re.compile(r'(?P<space>\s+)|(?P<string>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|'
                   r"(?P<word>[A-Za-z_]\w*)|(?P<number>\.?\d[\w.]*)|"
                   r"(?P<sign>\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)", re.S)
Token = collections.namedtuple("Token", "kind text begin end")
PAIRS = {"(": ")", "[": "]", "{": "}"}


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


class Source:
    """One file as tokens, with the partner of each bracket and the extent of each operand."""

    def __init__(self, path, text):
        self.path = path
        strings = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
        self.text = re.sub(r"/\*.*?\*/|//[^\n]*|" + strings,
                           lambda m: m.group() if m.group()[0] in "\"'" else blank(m), text, flags=re.S)
        plain = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, self.text, flags=re.M)
        self.tokens = [Token(m.lastgroup, m.group(), m.start(), m.end())
                       for m in TOKEN.finditer(plain) if m.lastgroup != "space"]
        self.starts = [0] + [m.end() for m in re.finditer("\n", text)]
        self.pair_brackets()
        self.find_functions()
        self.find_constant()

    def line(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def line_text(self, offset):
        number = self.line(offset)
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1]:end].strip()

    def pair_brackets(self):
        self.partner, self.inside = {}, []
        stack = []
        for i, token in enumerate(self.tokens):
            if token.text in (")", "]", "}") and token.kind == "sign" and stack:
                opened = stack.pop()
                self.partner[opened], self.partner[i] = i, opened
            self.inside.append(stack[-1] if stack else None)
            if token.kind == "sign" and token.text in PAIRS:
                stack.append(i)
        if stack:
            raise ValueError("%s: brackets do not match" % self.path)

    def at(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def find_functions(self):
        """[(first token, last token, name)] of function bodies."""
        self.functions = []
        i = 0
        while i < len(self.tokens):
            if self.at(i) == "{":
                end = self.partner[i]
                if self.at(i - 1) == ")":
                    self.functions.append((i, end, self.at(self.partner[i - 1] - 1)))
                i = end
            i += 1

    def skip(self, first, last):
        for i in range(first, last + 1):
            self.constant.add(i)

    def find_constant(self):
        """Tokens that must stay as they are: array sizes, case labels, static tables, types."""
        self.constant = set()
        for first, last, _ in self.functions:
            for i in range(first, last):
                self.constant_at(i)

    def constant_at(self, i):
        token = self.tokens[i]
        if token.text in CONSTANT_CALLS and self.at(i + 1) == "(":
            self.skip(i, self.partner[i + 1])
        elif token.text == "case":
            end = i
            while self.at(end) != ":":
                end += 1
            self.skip(i, end)
        elif token.text == "static":
            end = i
            while self.at(end) != ";":
                end = self.partner.get(end, end) + 1 if self.at(end) in PAIRS else end + 1
            self.skip(i, end)
        elif token.text in ("struct", "union", "enum"):
            brace = i + 1 if self.at(i + 1) == "{" else i + 2
            if self.at(brace) == "{" and (brace == i + 1 or self.tokens[i + 1].kind == "word"):
                self.skip(i, self.partner[brace])
        elif token.text == "[" and (self.at(i - 1) in ("{", ",") or self.declares(i - 1)):
            while self.at(i) == "[":
                self.skip(i, self.partner[i])
                i = self.partner[i] + 1

    def declares(self, i):
        """Is this word the name in a declaration: `int x`, `char *x`, or `, x` behind them?"""
        if self.tokens[i].kind != "word":
            return False
        opened = self.inside[i]
        if self.at(i - 1) == "," and opened is not None and self.at(opened) == "{" and block(self, opened):
            return True
        before = i - 1
        while self.at(before) == "*" and self.tokens[before].end == self.tokens[before + 1].begin:
            before -= 1
        word = self.tokens[before]
        if before < i - 1 and word.kind == "word" and word.text not in KEYWORDS:
            return self.tokens[before].end < self.tokens[before + 1].begin
        return before == i - 1 and word.kind == "word" and word.text not in KEYWORDS

    def binary(self, i):
        """Is this token an operator between two operands?"""
        token = self.tokens[i]
        if token.kind != "sign" or token.text not in LEVEL:
            return False
        before, after = self.tokens[i - 1], self.tokens[i + 1]
        operand = before.kind in ("word", "number", "string") or before.text in (")", "]", "}")
        return operand and before.text not in KEYWORDS and before.end < token.begin and token.end < after.begin

    def operand_before(self, i, level):
        """First token of the left operand of the operator at `i`."""
        j = i - 1
        while True:
            token = self.tokens[j]
            if token.kind == "sign" and token.text in (")", "]", "}"):
                j = self.partner[j] - 1
                continue
            if token.kind == "sign" and token.text in ("(", "[", "{", ";", ",", "?", ":"):
                return j + 1
            if token.text in ASSIGNMENT or token.text in ("return", "else", "do", "case"):
                return j + 1
            if self.binary(j) and LEVEL[token.text] < level:
                return j + 1
            j -= 1

    def operand_after(self, i, level):
        """Last token of the right operand of the operator at `i`."""
        j = i + 1
        while True:
            token = self.tokens[j]
            if token.kind == "sign" and token.text in PAIRS:
                j = self.partner[j] + 1
                continue
            if token.kind == "sign" and token.text in (")", "]", "}", ";", ",", "?", ":"):
                return j - 1
            if token.text in ASSIGNMENT or (self.binary(j) and LEVEL[token.text] <= level):
                return j - 1
            j += 1

    def raw(self, first, last):
        return re.sub(r"\s*\n\s*", " ", self.text[self.tokens[first].begin:self.tokens[last].end])

    def whole(self, first, last):
        """Has no preprocessor line and no constant part."""
        text = self.text[self.tokens[first].begin:self.tokens[last].end]
        return not re.search(r"^\s*#", text, re.M)


def expression_mutants(source, i):
    """(first token, last token, operator, changed text) for the operator, constant or negation at token `i`."""
    token = source.tokens[i]
    if source.binary(i) and token.text in SWAPS:
        level = LEVEL[token.text]
        first, last = source.operand_before(i, level), source.operand_after(i, level)
        left, right = source.raw(first, i - 1), source.raw(i + 1, last)
        operator, changes = SWAPS[token.text]
        for change in changes:
            yield first, last, operator, "%s %s %s" % (left, change, right)
        if operator == "logic":
            yield first, last, "drop term", left
            # The left operand of "a && b && c" is "a && b": its terms are dropped one by one already.
            if not any(source.binary(j) and source.at(j) == token.text for j in range(first, i)
                       if source.inside[j] == source.inside[i]):
                yield first, last, "drop term", right
    elif token.text == "!" and source.tokens[i + 1].begin == token.end:
        last = i + 1
        while source.at(last) in ("!", "*", "&"):
            last += 1
        if source.at(last) == "(":
            last = source.partner[last]
        while source.at(last + 1) in ("->", ".", "(", "["):
            last = source.partner[last + 1] if source.at(last + 1) in PAIRS else last + 2
        yield i, last, "logic", "!!" + source.raw(i + 1, last)
    elif token.kind == "number" and re.match(r"[1-9]\d*$", token.text):
        divisor = source.at(i - 1) in ("/", "%")  # by 0 means anything to a compiler
        for change in ["0", "1"] if token.text != "1" else ["0"]:
            if not (divisor and change == "0"):
                yield i, i, "constant", change
    elif token.text in ("true", "false"):
        yield i, i, "constant", "false" if token.text == "true" else "true"


def statement_begins(source, i):
    """Does a statement begin at token `i`? (Only a word or * can begin one that is mutated.)"""
    opened = source.inside[i]
    if opened is None or source.at(opened) != "{" or not block(source, opened):
        return False
    before = source.at(i - 1)
    if before in (";", "{", "}", "else", "do"):
        return True
    if before == ")":
        return source.at(source.partner[i - 1] - 1) in HEADS
    if before == ":":
        j = i - 2
        while source.at(j) not in (";", "{", "}", ":"):
            j -= 1
        return source.at(j + 1) in ("case", "default") or j + 1 == i - 2
    return False


def block(source, i):
    """Is this { the beginning of a block, rather than of an initializer?"""
    before = source.at(i - 1)
    if before == ")":
        head = source.tokens[source.partner[i - 1] - 1]
        return head.text in HEADS or (head.kind == "word" and head.text not in KEYWORDS)
    return before in ("else", "do", ";", "{", "}", ":")


def statement_mutants(source, i):
    """(first, last, operator, changed text) for the statement at token `i`; last is its semicolon."""
    if not statement_begins(source, i):
        return
    token = source.tokens[i]
    if token.text in KEYWORDS or token.text == "}" or (token.kind != "word" and token.text != "*"):
        return
    j, assign = i, None
    while source.at(j) != ";":
        if source.at(j) in PAIRS:
            if source.at(j) == "{" and assign is None:
                return
            j = source.partner[j]
        elif source.at(j) in ASSIGNMENT and assign is None:
            assign = j
        elif source.at(j) in ("}", ":") and assign is None:
            return
        j += 1
    if assign is not None:
        if any(source.declares(k) for k in range(i + 1, assign)):
            return
        for change in ASSIGNS.get(source.at(assign), []):
            yield i, j, "assign", "%s %s %s;" % (source.raw(i, assign - 1), change, source.raw(assign + 1, j - 1))
        yield i, j, "drop statement", ";"
    elif source.at(j - 1) in ("++", "--") or source.at(i) in ("++", "--"):
        yield i, j, "drop statement", ";"
    elif source.at(j - 1) == ")":
        call = source.partner[j - 1] - 1
        words = [source.at(k) for k in range(i, call + 1)]
        if all(re.match(r"\w+$|->$|\.$", w) for w in words) and not KEPT_CALLS.match(words[-1]) \
                and not any(source.declares(k) for k in range(i + 1, call + 1)):
            yield i, j, "drop statement", ";"


def mutants_of(path, text):
    """All mutants of one file, in the order of the text, and the Source."""
    source = Source(path, text)
    found = []
    for first, last, name in source.functions:
        for i in range(first + 1, last):
            if i in source.constant:
                continue
            for make in (statement_mutants, expression_mutants):
                for begin, end, operator, after in make(source, i):
                    if source.whole(begin, end):
                        found.append(Mutant(path, len(found) + 1, source.line(source.tokens[i].begin),
                                            source.tokens[begin].begin, source.tokens[end].end, name, operator,
                                            source.raw(begin, end), after, make is statement_mutants,
                                            source.line_text(source.tokens[i].begin)))
    return found, source


def differs(mutant):
    """C text that is true where the change shows in the value, for operands without side effects."""
    if mutant.operator in ("boundary", "arithmetic") and "/" not in mutant.after and "/" not in mutant.before \
            and not re.search(r"\w\(|\+\+|--|[^=!<>]=[^=]", mutant.before + mutant.after):
        return "(%s) != (%s)" % (mutant.before, mutant.after)
    return "1"


def schemata(source, mutants, header):
    """The text of the file with all `mutants` in it, line for line as before."""
    groups = collections.defaultdict(list)
    for mutant in mutants:
        groups[(mutant.begin, mutant.end, mutant.statement)].append(mutant)
    opening, closing = collections.defaultdict(list), collections.defaultdict(list)
    for (begin, end, statement), rows in groups.items():
        if statement:
            before = "{ " + "".join("if (MUTANT(%d, 1)) { %s } else " % (m.number, m.after) for m in rows)
            after = " }"
        else:
            before = "(" + "".join("MUTANT(%d, %s) ? (%s) : " % (m.number, differs(m), m.after) for m in rows) + "("
            after = "))"
        opening[begin].append((end - begin, before))
        closing[end].append((end - begin, after))
    pieces, at = [], 0
    for place in sorted(set(opening) | set(closing)):
        pieces.append(source.text[at:place])
        pieces += [text for _, text in sorted(closing.get(place, []), key=lambda row: row[0])]
        pieces += [text for _, text in sorted(opening.get(place, []), key=lambda row: -row[0])]
        at = place
    pieces.append(source.text[at:])
    return '#define MUTANT_FILE "%s"\n#define MUTANT_COUNT %d\n#include "%s"\n#line 1\n' % (
        source.path, len(mutants) and max(m.number for m in mutants), header) + "".join(pieces)


HEADER = r"""/* Written by script/mutate: which mutant of this file is on, and which ones a run comes by. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned mutant_on;
static unsigned char *mutant_seen;

__attribute__((constructor)) static void mutant_start(void)
{
    const char *on = getenv("MUTANT"), *folder = getenv("MUTANT_SEEN");
    size_t length = sizeof(MUTANT_FILE) - 1;
    if (on && strncmp(on, MUTANT_FILE, length) == 0 && on[length] == ':')
        mutant_on = (unsigned)atoi(on + length + 1);
    if (!folder)
        return;
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, MUTANT_FILE);
    for (char *at = path + strlen(folder) + 1; *at; at++)
        *at = *at == '/' ? '%' : *at;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    if (ftruncate(fd, MUTANT_COUNT + 1) == 0) {
        void *at = mmap(NULL, MUTANT_COUNT + 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        mutant_seen = at == MAP_FAILED ? NULL : at;
    }
    close(fd);
}

static inline int mutant_note(unsigned number)
{
    mutant_seen[number] = 1;
    return 0;
}

#define MUTANT(number, differs) \
    (mutant_on == (number) || (__builtin_expect(mutant_seen != NULL, 0) && (differs) && mutant_note(number)))
"""
