/* Documents that are no tables: those of heap, explain, trace, pin, run and others. Their keys are words of the vocabulary,
 * too, and "columns" at their end tells the kind and unit of each figure, as it does in answers of tables. */
#pragma once

struct json;

/* End a document: "columns" ([{"name","kind","unit"}], by name, each once) for the figures and times that were written since
 * json_init(), then the end of the outermost object. Keys that are not in the vocabulary are left out; tests look for them.
 * Reads what was written, at about 2 ns a byte. */
void query_document_end(struct json *json);
