// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// Makes the wrong calls of a table of rules (tests/rules, from standard input), and compares the answers.
//
// Calls run in a child process: where one crashes or does not return, another child continues after it.
// Arguments: `arguments` (the rules of the rows), `per_thread` (of the rows that end with +, for the names _ptsz and
// _ptds), a state (the answers of the state's column), or `robust` (every row with all kinds of wrong values, where any
// answer but a crash is right).
#include "call.h"

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

// In the child: makes the objects. `new NAME CALL` keeps the first thing that the call writes; `call CALL`;
// `thread CALL` calls in another thread; `expect NUMBER CALL`.
static void make_objects() {
    static unsigned char in_program[8192];
    void *heap = std::calloc(1, 65536);
    void *pages = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const std::pair<const char *, const void *> own[] = {{"heap", heap}, {"pages", pages}, {"static", in_program}};
    objects["pid"] = getpid();
    for (const auto &[name, address] : own) {
        objects[name] = (Word)(uintptr_t)address;
    }
    if (mode == "before_init") {
        objects["host"] = (Word)(uintptr_t)room;
        return;
    }
    for (const auto &[state, words] : set_up) {
        if (!state.empty() && state != mode) {
            continue;
        }
        const bool is_new = words[0] == "new" || words[0] == "text-of", expects = words[0] == "expect";
        const Words rest(words.begin() + 1 + (is_new || expects), words.end());
        int code = 0;
        if (words[0] == "thread") {
            std::thread([&] { code = call(rest); }).join();
        } else {
            code = call(rest);
        }
        if (words[0] == "text-of") {
            texts[words[1]] = reinterpret_cast<const char *>(room);
        } else if (is_new) {
            // Objects that this device does not have stay null.
            std::memcpy(&objects[words[1]], room, sizeof(Word));
        } else if (expects && code != std::stoi(words[1])) {
            fail(words[2] + " answers " + std::to_string(code), "set-up");
        }
    }
}

// What the parent knows of its children.
struct Progress {
    volatile size_t at;
    volatile int answers[1 << 16];
};
enum { kRight = -100001, kCrash = -100002, kHang = -100003 };

// The buffer of `.MEMBER`.
static Buffer &only_buffer(const Call &call) {
    for (const std::string &word : call.words) {
        const auto found = buffers.find(word.substr(word[0] == '=' || word[0] == '*'));
        if (found != buffers.end()) {
            return found->second;
        }
    }
    fail("No buffer is an argument", call.words[0]);
}

static int make(const Rule &rule) {
    const auto saved = buffers;
    std::vector<Call> calls = rule.calls;
    for (const auto &[place, value] : rule.changes) {
        if (std::isdigit(place[0])) {
            calls[0].words.at(std::stoul(place) + 1) = value;
        } else {
            const size_t dot = place.find('.');
            Buffer &of = dot == 0 ? only_buffer(calls[0]) : buffers.at(place.substr(0, dot));
            of.members.push_back({place.substr(dot + 1), value});
        }
    }
    int answer = kRight;
    for (const Call &of : calls) {
        const int code = call(of.words);
        if (!of.answer.empty() && answer == kRight && code != std::stoi(of.answer)) {
            answer = code;
        }
    }
    buffers = saved;
    return answer;
}

static void run(Progress *progress) {
    make_objects();
    for (; progress->at < rules.size(); progress->at = progress->at + 1) {
        const int answer = make(rules[progress->at]);
        progress->answers[progress->at] = answer;
        if (answer == 0) {  // A call that should have been refused may have taken something away.
            progress->at = progress->at + 1;
            _exit(0);
        }
    }
    if (mode == "before_init") {  // The refused calls leave the library as it was.
        mode = "arguments";
        make_objects();
    }
    _exit(0);
}

// Waits for a child; returns false if no call returns for some time.
static bool finish(pid_t child, const Progress *progress, int &status) {
    constexpr int kLimit = 60 * 100;
    size_t last = progress->at;
    for (int late = 0; late < kLimit; late++) {
        if (waitpid(child, &status, WNOHANG) == child) {
            return true;
        }
        if (progress->at != last) {
            last = progress->at;
            late = 0;
        }
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

int main(int count, char **arguments) {
    mode = count > 1 ? arguments[1] : mode;
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    std::string row, state;
    for (std::string line; std::getline(std::cin, line);) {
        if (!line.empty() && line[0] == ' ') {
            row += line;
            continue;
        }
        if (!row.empty()) {
            add_line(row, state);
        }
        row = line.empty() || line[0] == '#' ? "" : line;
    }
    if (!row.empty()) {
        add_line(row, state);
    }
    void *shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Progress *progress = static_cast<Progress *>(shared);
    if (shared == MAP_FAILED || rules.size() > sizeof progress->answers / sizeof progress->answers[0]) {
        fail("No memory for rules", std::to_string(rules.size()));
    }
    while (progress->at < rules.size()) {
        const pid_t child = fork();
        if (child == 0) {
            run(progress);
        }
        int status = 0;
        const size_t from = progress->at;
        const bool returned = finish(child, progress, status);
        if (returned && WIFEXITED(status) && WEXITSTATUS(status) != 0) {
            return WEXITSTATUS(status);
        }
        if (!returned || !WIFEXITED(status) || progress->at == from) {
            progress->answers[progress->at] = returned ? kCrash : kHang;
            progress->at = progress->at + 1;
        }
    }
    for (size_t i = 0; i < rules.size(); i++) {
        const int answer = progress->answers[i];
        const std::string is = answer == kCrash ? "crash" : answer == kHang ? "hang" : std::to_string(answer);
        if (answer != kRight) {
            const std::string &expected = rules[i].calls[0].answer;
            const bool one = rules[i].calls.size() == 1 && mode != "robust";
            std::printf("%s: expected %s, got %s\n", rules[i].text.c_str(), one ? expected.c_str() : "other answers",
                        is.c_str());
        }
    }
    std::printf("%zu rules\n", rules.size());
    return 0;
}
