// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls with one bad argument each. A table names every entry point with arguments that would be good; the frame
// spoils one of them at a time and prints `function argument how -> code`.
//
// Calls run in a child process: where a library crashes, the line ends with `crash` and another child goes on with the
// next call. (NVIDIA's libraries look into some handles unchecked. Where they do, ours must answer any code.)
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace bad_input {

// Room for any answer and any description, zeroed before each call.
alignas(64) inline unsigned char room[8192];

// Objects of the library under test; a table's set-up fills them in the child.
template <class T>
struct Handle {
    static constexpr bool is = false;
};

#define BAD_INPUT_HANDLE(type)                  \
    template <>                                 \
    struct bad_input::Handle<type> {            \
        static constexpr bool is = true;        \
        static inline type good{};              \
        static inline type freed{};             \
    };

template <class T>
struct Callback;
template <class R, class... A>
struct Callback<R (*)(A...)> {
    static R nothing(A...) { return R(); }
};

// An argument that is good enough for its type.
template <class T>
T usual() {
    if constexpr (Handle<T>::is) {
        return Handle<T>::good;
    } else if constexpr (std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>) {
        return &Callback<T>::nothing;
    } else if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<T>(room);
    } else {
        return T{};
    }
}

struct Usual {
    template <class T>
    operator T() const {
        return usual<T>();
    }
};
// The usual argument.
inline constexpr Usual _{};

template <class T>
struct Bad {
    const char *how;
    T value;
    // A library that takes this for good may be damaged afterwards.
    bool risky = false;
};

template <class T>
T bits(unsigned char byte) {
    T value{};
    std::memset(static_cast<void *>(&value), byte, sizeof value);
    return value;
}

template <class T>
std::vector<Bad<T>> bad_values() {
    if constexpr (Handle<T>::is) {
        std::vector<Bad<T>> list = {{"null", T{}}, {"forged", (T)(uintptr_t)0x123456789ab0, true}};
        if (Handle<T>::freed != T{}) {
            list.push_back({"freed", Handle<T>::freed, true});
        }
        return list;
    } else if constexpr (std::is_same_v<T, const char *>) {
        return {{"null", nullptr}, {"empty", ""}};
    } else if constexpr (std::is_pointer_v<T>) {
        return {{"null", nullptr}};
    } else if constexpr (std::is_enum_v<T>) {
        return {{"unknown", static_cast<T>(0x7ffffff0)}};
    } else if constexpr (std::is_same_v<T, unsigned long>) {
        return {{"zero", 0}, {"huge", ~0ul}, {"odd", (1ul << 62) + 3}};
    } else if constexpr (std::is_same_v<T, unsigned long long>) {
        return {{"zero", 0}, {"one", 1, true}, {"ones", ~0ull, true}, {"stack", (unsigned long long)(uintptr_t)&room, true}};
    } else if constexpr (std::is_same_v<T, int>) {
        return {{"negative", -1}, {"large", 0x7ffffff0}};
    } else if constexpr (std::is_integral_v<T>) {
        return {{"ones", static_cast<T>(~T{})}};
    } else if constexpr (std::is_class_v<T>) {
        return {{"ones", bits<T>(0xff)}};
    } else {
        return {};
    }
}

// An argument that stays as it is: nobody can check the length of an array.
template <class T>
struct Kept {
    T value;
};
template <class T>
Kept<T> keep(T value) {
    return {value};
}
template <class T>
constexpr bool is_kept(const T &) {
    return false;
}
template <class T>
constexpr bool is_kept(const Kept<T> &) {
    return true;
}
template <class A, class G>
A argument(const G &good) {
    return A(good);
}
template <class A, class G>
A argument(const Kept<G> &kept) {
    return A(kept.value);
}

struct Case {
    std::string name;
    std::function<int()> call;
    bool risky;
};
inline std::vector<Case> cases;

template <class Tuple, class F, size_t... I>
void add_cases(const char *name, F *function, const Tuple &good, std::vector<bool> kept, std::index_sequence<I...>) {
    const auto one = [&](auto index) {
        constexpr size_t at = decltype(index)::value;
        if (at < kept.size() && kept[at]) {
            return;
        }
        for (const auto &bad : bad_values<std::tuple_element_t<at, Tuple>>()) {
            Tuple arguments = good;
            std::get<at>(arguments) = bad.value;
            cases.push_back({std::string(name) + " " + std::to_string(at) + " " + bad.how,
                             [=] { return static_cast<int>(std::apply(function, arguments)); }, bad.risky});
        }
    };
    (one(std::integral_constant<size_t, I>{}), ...);
}

// Adds the cases of one entry point, with good arguments (all the usual ones if none are given).
template <class R, class... A, class... G>
void probe(const char *name, R (*function)(A...), G... good) {
    static_assert(sizeof...(G) == 0 || sizeof...(G) == sizeof...(A), "one argument for each parameter");
    if (function == nullptr) {
        cases.push_back({std::string(name) + " missing", [] { return -1; }, false});
        return;
    }
    if constexpr (sizeof...(G) == 0) {
        add_cases(name, function, std::tuple<A...>{usual<A>()...}, {}, std::index_sequence_for<A...>{});
    } else {
        add_cases(name, function, std::tuple<A...>{argument<A>(good)...}, {is_kept(good)...}, std::index_sequence_for<A...>{});
    }
}

inline void say(int pipe, char kind, const std::string &text) {
    const std::string line = kind + text + "\n";
    if (write(pipe, line.data(), line.size()) != (ssize_t)line.size()) {
        _exit(9);
    }
}

// In the child: from case `from` on, until the end or until another child had better go on.
inline void run_cases(size_t from, int pipe, void (*set_up)(), bool (*healthy)()) {
    set_up();
    for (size_t i = from; i < cases.size(); i++) {
        std::memset(room, 0, sizeof room);
        alarm(20);
        say(pipe, 'B', cases[i].name);
        const int code = cases[i].call();
        say(pipe, 'R', std::to_string(code));
        if ((cases[i].risky && code == 0) || !healthy()) {
            say(pipe, 'N', "");
            _exit(0);
        }
    }
    say(pipe, 'E', "");
    _exit(0);
}

// Runs everything that `set_up` adds; `healthy` says whether a child can go on after a call.
inline int main_of(int count, char **arguments, void (*set_up)(), bool (*healthy)()) {
    const char *only = count > 1 ? arguments[1] : nullptr;
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    size_t done = 0;
    for (bool more = true; more;) {
        int ends[2];
        if (pipe(ends) != 0) {
            return 1;
        }
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            run_cases(done, ends[1], set_up, healthy);
        }
        close(ends[1]);
        FILE *in = fdopen(ends[0], "r");
        char line[512];
        std::string name;
        bool told = false, any = false;
        more = true;
        while (std::fgets(line, sizeof line, in) != nullptr) {
            line[std::strcspn(line, "\n")] = 0;
            any = true;
            if (line[0] == 'B') {
                name = line + 1;
                told = false;
            } else if (line[0] == 'R') {
                if (only == nullptr || name.find(only) != std::string::npos) {
                    std::printf("%s -> %s\n", name.c_str(), line + 1);
                }
                told = true;
                done++;
            } else if (line[0] == 'E') {
                more = false;
            }
        }
        std::fclose(in);
        int status = 0;
        waitpid(child, &status, 0);
        if (!any) {
            std::fprintf(stderr, "the set-up fails (status %x)\n", status);
            return 1;
        }
        if (!told) {
            const bool hang = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
            std::printf("%s -> %s\n", name.c_str(), hang ? "hang" : "crash");
            done++;
        }
    }
    std::printf("%zu calls\n", done);
    return 0;
}

}  // namespace bad_input
