// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads a table of rules. docs/testing.md has the format of its lines.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

using Words = std::vector<std::string>;
using Word = unsigned long long;

// A call `function argument…` and the answer that it must have, if that matters.
struct Call {
    Words words;
    std::string answer;
};

// Places of a call and their values: the number of an argument, BUFFER.MEMBER, or .MEMBER of the only buffer.
using Changes = std::vector<std::pair<std::string, std::string>>;

// Calls that are made one after the other: a rule of a row has one.
struct Rule {
    std::vector<Call> calls;
    // The replacement in the first call.
    Changes changes;
    std::string text;
};

struct Buffer {
    std::string type;
    size_t size;
    Changes members;
    std::vector<unsigned char> bytes;
};

[[noreturn]] static void fail(const std::string &what, const std::string &where) {
    std::fprintf(stderr, "wrong_calls: %s: %s\n", what.c_str(), where.c_str());
    _exit(2);
}

// The first argument of the program.
static std::string mode = "arguments";
// The runtime library of this table.
static std::string runtime = "libcudart.so.13";
static std::map<std::string, std::string> texts;
static std::map<std::string, Buffer> buffers;
// The lines of the set-up, each with its state, and the names of what they make.
static std::vector<std::pair<std::string, Words>> set_up;
static std::set<std::string> handles;
// In the order of a row's columns.
static Words states;
static std::vector<Rule> rules;

static Words split(const std::string &text, const char *separators) {
    Words words;
    bool quoted = false;
    std::string word;
    for (const char at : text + separators[0]) {
        quoted ^= at == '"';
        if (!quoted && std::strchr(separators, at) != nullptr) {
            if (!word.empty()) {
                words.push_back(word);
            }
            word.clear();
        } else {
            word += at;
        }
    }
    return words;
}

// The text between quotation marks, where ` is the end of a line.
static std::string text_of(const std::string &line) {
    const size_t from = line.find('"') + 1;
    std::string text = line.substr(from, line.rfind('"') - from);
    for (char &at : text) {
        at = at == '`' ? '\n' : at;
    }
    return text;
}

static void *find(const std::string &name) {
    const bool is_runtime = name.rfind("cuda", 0) == 0, is_management = name.rfind("nvml", 0) == 0;
    const char *file = is_management ? "libnvidia-ml.so.1" : is_runtime ? runtime.c_str() : "libcuda.so.1";
    void *library = dlopen(file, RTLD_NOW);
    if (library == nullptr) {
        fail("Cannot load", file);
    }
    return dlsym(library, name.c_str());
}

// Wrong values for `robust`, by the kind of the good one. Nobody can check the address of a program's own memory.
static Words wrong_values(const std::string &good) {
    const std::string name = good.substr(0, good.find('+'));
    const auto is_one_of = [&](const Words &names) { return std::count(names.begin(), names.end(), name) != 0; };
    if (std::isdigit(name[0]) || name[0] == '-') {
        return {"0", "1", "-1", "0xfff", "0x4000000000000003"};
    }
    if (is_one_of({"memory", "managed", "variable"})) {
        return {"null", "1", "-1", "out"};
    }
    const bool is_text = name[0] == '"' || texts.count(name) != 0;
    if (is_one_of({"out", "callback", "host"}) || is_text || buffers.count(name) != 0) {
        return {"null"};
    }
    if (name == "none" || handles.count(name) != 0) {
        return {"null", "forged", "1"};
    }
    return {};
}

// `call = answer; call; call = answer…`
static void add_sequence(const std::string &line) {
    Rule rule = {{}, {}, line};
    for (const std::string &part : split(line, ";")) {
        Words words = split(part, " ");
        std::string answer;
        if (words.size() > 2 && words[words.size() - 2] == "=") {
            answer = words.back();
            words.resize(words.size() - 2);
        }
        rule.calls.push_back({words, answer});
    }
    rules.push_back(rule);
}

// The rules of `change,change=A/B:answer` for the call `good`: one for each of A and B.
static void add_rules(const Words &good, const std::string &text) {
    const size_t colon = text.rfind(':');
    const Words parts = split(text.substr(0, colon), ",");
    Changes changes;
    for (const std::string &part : parts) {
        const size_t is = part.find('=');
        changes.push_back({part.substr(0, is), part.substr(is + 1)});
    }
    const std::string last = changes.empty() ? "" : changes.back().second;
    const bool is_one = changes.empty() || last.find('"') != std::string::npos;
    for (const std::string &value : is_one ? Words{last} : split(last, "/")) {
        if (!changes.empty()) {
            changes.back().second = value;
        }
        std::string what = good[0];
        for (const auto &[place, value] : changes) {
            what += " " + place + "=" + value;
        }
        rules.push_back({{{good, text.substr(colon + 1)}}, changes, what});
    }
}

// The meaning of a row in this mode for one of its functions. The parts are the call, the rules and the answers in states.
static void add_function(const Words &good, bool per_thread, const Words &parts) {
    if (mode == "robust") {
        for (size_t i = 1; i < good.size(); i++) {
            for (const std::string &value : wrong_values(good[i])) {
                const std::string place = std::to_string(i - 1);
                rules.push_back({{{good, ""}}, {{place, value}}, good[0] + " " + place + "=" + value});
            }
        }
    } else if (mode == "arguments" || mode == "per_thread") {
        if (parts.size() > 1 && (mode == "arguments" || per_thread)) {
            for (const std::string &text : split(parts[1], " ")) {
                add_rules(good, text);
            }
        }
    } else if (parts.size() > 2) {
        const Words answers = split(parts[2], " ");
        for (size_t i = 0; i < answers.size() && i < states.size(); i++) {
            if (states[i] == mode && answers[i] != "-") {
                rules.push_back({{{good, answers[i]}}, {}, good[0] + " " + mode});
            }
        }
    }
}

// `function argument… | change:answer … | answers in states`
static void add_row(const std::string &line) {
    const Words parts = split(line, "|");
    Words good = split(parts[0], " ");
    // All words of a list of names but the last end with a comma.
    while (good[0].back() == ',') {
        good[0] += good.at(1);
        good.erase(good.begin() + 1);
    }
    for (std::string name : split(good[0], ",")) {
        const bool per_thread = name.back() == '+';
        name = name.substr(0, name.size() - per_thread);
        good[0] = name;
        if (mode == "per_thread") {
            good[0] = find(name + "_ptsz") != nullptr ? name + "_ptsz" : name + "_ptds";
        }
        add_function(good, per_thread, parts);
    }
}

// `runtime FILE`, `text NAME "…"`, `buffer NAME TYPE SIZE member=value…`, `[STATE]` for what follows of the set-up, a
// line of the set-up, or a row.
static void add_line(const std::string &line, std::string &state) {
    static const std::set<std::string> of_set_up = {"call", "expect", "new", "text-of", "thread"};
    const Words words = split(line, " ");
    if (words[0] == "runtime") {
        runtime = words[1];
    } else if (words[0] == "text") {
        texts[words[1]] = text_of(line);
    } else if (words[0] == "buffer") {
        Buffer &of = buffers[words[1]] = {words[2], std::stoul(words[3]), {}, {}};
        for (size_t i = 4; i < words.size(); i++) {
            const size_t is = words[i].find('=');
            of.members.push_back({words[i].substr(0, is), words[i].substr(is + 1)});
        }
    } else if (words[0][0] == '[') {
        state = words[0].substr(1, words[0].size() - 2);
        if (!state.empty()) {
            states.push_back(state);
        }
    } else if (of_set_up.count(words[0]) != 0) {
        set_up.push_back({state, words});
        if (words[0] == "text-of") {
            texts[words[1]] = "";
        } else if (words[0] == "new") {
            handles.insert(words[1]);
        }
    } else if (line.find('|') != std::string::npos) {
        add_row(line);
    } else if (mode == "arguments") {
        add_sequence(line);
    }
}

