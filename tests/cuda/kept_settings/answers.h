// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers of getters, before and after the session gets another worker.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <unistd.h>

// The answers of getters, in the order of the calls.
class Answers {
  public:
    struct Answer {
        std::string getter, what, value;
    };

    // The result of a call, and the bytes that it has returned. They are looked at only if the call has succeeded.
    template <class T> void add(const char *getter, const std::string &what, int result, const T &value) {
        add_bytes(getter, what, result, &value, sizeof value);
    }

    void add_bytes(const char *getter, const std::string &what, int result, const void *value, size_t bytes) {
        std::string text = "result " + std::to_string(result);
        if (result == 0) {
            text.clear();
            const auto *of = static_cast<const unsigned char *>(value);
            while (bytes > 1 && of[bytes - 1] == 0) bytes--;
            for (char digits[3]; bytes-- > 0; text += digits) std::snprintf(digits, sizeof digits, "%02x", of[bytes]);
        }
        all_.push_back({getter, what, text});
    }

    const std::vector<Answer> &all() const { return all_; }

  private:
    std::vector<Answer> all_;
};

static volatile std::sig_atomic_t settings_end;

// Asks, sets, asks again, prints both answers to each question, waits for SIGTERM, and asks once more. Returns the exit status.
inline int keep_settings(const std::function<void(Answers &)> &ask, const std::function<void()> &set) {
    std::signal(SIGTERM, [](int) { settings_end = 1; });
    Answers initial, before, after;
    ask(initial);
    set();
    ask(before);
    for (size_t i = 0; i < before.all().size(); i++) {
        const auto &[getter, what, value] = before.all()[i];
        std::printf("%s(%s) = %s, at first %s\n", getter.c_str(), what.c_str(), value.c_str(), initial.all()[i].value.c_str());
    }
    std::printf("begun\n");
    std::fflush(stdout);
    while (!settings_end) usleep(1000);
    ask(after);
    int differences = 0;
    for (size_t i = 0; i < before.all().size(); i++) {
        const auto &[getter, what, value] = before.all()[i];
        const std::string &now = after.all()[i].value;
        if (now == value) continue;
        differences++;
        std::fprintf(stderr, "%s(%s) was %s, and is %s\n", getter.c_str(), what.c_str(), value.c_str(), now.c_str());
    }
    if (differences) return 1;
    std::printf("right\n");
    return 0;
}
