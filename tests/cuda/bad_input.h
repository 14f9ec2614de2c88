// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls with one bad argument each. A table names every entry point with arguments that would be good; the frame
// spoils one of them at a time and prints `function argument how -> code`.
//
// Calls run in child processes, eight at a time: where a library crashes or does not return within seconds, the line ends
// with `crash` or `hang` and another child goes on with the next call. (NVIDIA's libraries look into some handles
// unchecked. Where they do, ours must answer any code.) A new context takes long, so that one process alone would take
// minutes.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
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
    // The number of the entry point.
    size_t function;
};
inline std::vector<Case> cases;
inline size_t functions;

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
                             [=] { return static_cast<int>(std::apply(function, arguments)); }, bad.risky, functions});
        }
    };
    (one(std::integral_constant<size_t, I>{}), ...);
}

// Whether arguments are spoilt, or each entry point is called once as it is (where the state is what is wrong).
#ifdef BAD_INPUT_AS_IT_IS
inline constexpr bool as_it_is = true;
#else
inline constexpr bool as_it_is = false;
#endif
// Which entry points are called: those whose names end so.
inline std::vector<std::string> endings = {""};

inline bool is_wanted(const std::string &name) {
    for (const std::string &ending : endings) {
        if (name.size() >= ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0) {
            return true;
        }
    }
    return false;
}

// What takes something away, if it succeeds.
inline bool takes(const std::string &name) {
    for (const char *word : {"Free", "Destroy", "Unregister", "Close", "Unmap", "Unload", "Release", "Reset", "Detach"}) {
        if (name.find(word) != std::string::npos) {
            return true;
        }
    }
    return false;
}

// What asks, waits, copies, or makes memory of its own changes nothing for the next call.
inline bool changes_nothing(const std::string &name) {
    const auto has = [&](const char *word) { return name.find(word) != std::string::npos; };
    if (has("Get") || has("Query")) {
        return true;
    }
    const bool harmless = has("Occupancy") || has("Synchronize") || has("Memcpy") || has("Memset") || has("Alloc");
    return harmless && !has("Graph");
}

// Adds the cases of one entry point, with good arguments (all the usual ones if none are given).
template <class R, class... A, class... G>
void probe(const char *name, R (*function)(A...), G... good) {
    static_assert(sizeof...(G) == 0 || sizeof...(G) == sizeof...(A), "one argument for each parameter");
    if (!is_wanted(name)) {
        return;
    }
    functions++;
    if (function == nullptr) {
        cases.push_back({std::string(name) + " missing", [] { return -1; }, false, functions});
        return;
    }
    if constexpr (as_it_is) {
        std::tuple<A...> arguments;
        if constexpr (sizeof...(G) == 0) {
            arguments = {usual<A>()...};
        } else {
            arguments = {argument<A>(good)...};
        }
        cases.push_back({name, [=] { return static_cast<int>(std::apply(function, arguments)); }, !changes_nothing(name), functions});
    } else if constexpr (sizeof...(G) == 0) {
        add_cases(name, function, std::tuple<A...>{usual<A>()...}, {}, std::index_sequence_for<A...>{});
    } else {
        add_cases(name, function, std::tuple<A...>{argument<A>(good)...}, {is_kept(good)...}, std::index_sequence_for<A...>{});
    }
}

// So many supervisors share the entry points. A fixed number: what one call leaves behind may change the next answer.
inline constexpr size_t kShares = 8;
// A call that takes longer hangs, s: a driver makes contexts one after the other, for all children. Setting up takes
// longer than a call.
inline constexpr int kCallLimit = 12, kSetUpLimit = 60;

// The cases to call, in this order: those of the lines in the file that BAD_INPUT_LINES names (what follows ` -> ` there
// does not count), else all.
inline std::vector<size_t> wanted_cases() {
    std::vector<size_t> wanted;
    const char *file = std::getenv("BAD_INPUT_LINES");
    if (file == nullptr) {
        for (size_t i = 0; i < cases.size(); i++) {
            wanted.push_back(i);
        }
        return wanted;
    }
    std::unordered_map<std::string, size_t> named;
    for (size_t i = 0; i < cases.size(); i++) {
        named.emplace(cases[i].name, i);
    }
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        const auto found = named.find(line.substr(0, line.find(" -> ")));
        if (found != named.end()) {
            wanted.push_back(found->second);
        }
    }
    return wanted;
}

inline void say(int pipe, char kind, size_t place, const std::string &text) {
    const std::string line = kind + std::to_string(place) + " " + text + "\n";
    if (write(pipe, line.data(), line.size()) != (ssize_t)line.size()) {
        _exit(9);
    }
}

// In the child: the cases of a share, from the place `from` in their order, until the end or until another child had
// better go on.
inline void run_cases(size_t share, size_t from, int pipe, void (*set_up)(), bool (*healthy)()) {
    set_up();
    const std::vector<size_t> wanted = wanted_cases();
    for (size_t place = from; place < wanted.size(); place++) {
        const Case &of = cases[wanted[place]];
        if (of.function % kShares != share) {
            continue;
        }
        std::memset(room, 0, sizeof room);
        say(pipe, 'B', place, std::to_string(wanted[place]) + " " + of.name);
        const int code = of.call();
        say(pipe, 'R', place, std::to_string(code));
        if ((of.risky && code == 0) || !healthy()) {
            _exit(0);
        }
    }
    say(pipe, 'E', wanted.size(), "");
    _exit(0);
}

// A child and what it says.
struct Child {
    pid_t process = -1;
    int pipe = -1;
    std::string buffer;

    // The next line; false at the end, or (`late`) if none comes for `seconds`.
    bool line(std::string &text, int seconds, bool &late) {
        for (;;) {
            const size_t end = buffer.find('\n');
            if (end != std::string::npos) {
                text = buffer.substr(0, end);
                buffer.erase(0, end + 1);
                return true;
            }
            pollfd waiting = {pipe, POLLIN, 0};
            const int ready = poll(&waiting, 1, seconds * 1000);
            char bytes[4096];
            const ssize_t count = ready > 0 ? read(pipe, bytes, sizeof bytes) : 0;
            late = ready == 0;
            if (count <= 0) {
                return false;
            }
            buffer.append(bytes, count);
        }
    }

    // Its end. A process that a driver holds in the kernel is left behind.
    void finish() {
        kill(process, SIGKILL);
        close(pipe);
        for (int tries = 0; tries < 500 && waitpid(process, nullptr, WNOHANG) == 0; tries++) {
            usleep(10000);
        }
    }
};

// Runs the cases of a share, child after child; writes `index call -> answer` lines. False if the set-up fails or time
// runs out.
inline bool supervise(size_t share, FILE *out, time_t deadline, void (*set_up)(), bool (*healthy)()) {
    for (size_t next = 0;;) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            return false;
        }
        Child child;
        child.process = fork();
        if (child.process == 0) {
            run_cases(share, next, ends[1], set_up, healthy);
        }
        close(ends[1]);
        child.pipe = ends[0];
        std::string text, call;
        bool told = true, any = false, late = false, end = false;
        for (int limit = kSetUpLimit; !end && child.line(text, limit, late) && time(nullptr) < deadline; limit = kCallLimit) {
            any = true;
            const size_t place = std::strtoull(text.c_str() + 1, nullptr, 10);
            const std::string rest = text.substr(text.find(' ') + 1);
            if (text[0] == 'B') {
                call = rest;
                told = false;
                next = place + 1;
            } else if (text[0] == 'R') {
                std::fprintf(out, "%s -> %s\n", call.c_str(), rest.c_str());
                told = true;
            }
            end = text[0] == 'E';
        }
        child.finish();
        if (!told && time(nullptr) < deadline) {
            std::fprintf(out, "%s -> %s\n", call.c_str(), late ? "hang" : "crash");
        }
        std::fflush(out);
        if (end) {
            return true;
        }
        if (!any || time(nullptr) >= deadline) {
            std::fprintf(stderr, any ? "no time left in share %zu\n" : "the set-up fails in share %zu\n", share);
            return false;
        }
    }
}

// Runs everything that `set_up` adds; `healthy` says whether a child can go on after a call.
inline int main_of(int count, char **arguments, void (*set_up)(), bool (*healthy)()) {
    const char *only = count > 1 ? arguments[1] : nullptr;
    const char *seconds = std::getenv("BAD_INPUT_SECONDS");
    const time_t deadline = time(nullptr) + (seconds != nullptr ? std::atoi(seconds) : 270);
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    std::array<FILE *, kShares> files;
    std::array<pid_t, kShares> supervisors;
    for (size_t share = 0; share < kShares; share++) {
        files[share] = std::tmpfile();
        supervisors[share] = fork();
        if (supervisors[share] == 0) {
            _exit(supervise(share, files[share], deadline, set_up, healthy) ? 0 : 1);
        }
    }
    std::map<size_t, std::string> lines;
    bool good = true;
    for (size_t share = 0; share < kShares; share++) {
        int status = 0;
        waitpid(supervisors[share], &status, 0);
        good = good && status == 0;
        std::rewind(files[share]);
        char line[512];
        while (std::fgets(line, sizeof line, files[share]) != nullptr) {
            char *text = nullptr;
            const size_t index = std::strtoull(line, &text, 10);
            lines[index] = text + 1;
        }
    }
    for (const auto &[index, line] : lines) {
        if (only == nullptr || line.find(only) != std::string::npos) {
            std::fputs(line.c_str(), stdout);
        }
    }
    std::printf("%zu calls\n", lines.size());
    return good ? 0 : 1;
}

}  // namespace bad_input
