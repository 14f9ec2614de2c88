// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls with a structure of which one member is bad, calls with an address of each kind, and single calls.
// Lines are `function group .member how -> code`; the line without a member is the call with the good structure.
#pragma once

#include "bad_input.h"

#include <set>

namespace bad_input {

// A member of a structure and what is wrong for it.
struct Field {
    const char *name;
    size_t offset;
    std::vector<std::pair<const char *, std::vector<unsigned char>>> values;
};
using Fields = std::vector<Field>;
using Numbers = std::vector<std::pair<const char *, unsigned long long>>;

template <class T>
Field field(const char *name, size_t offset, const T &, bool usual, const Numbers &numbers) {
    Field field = {name, offset, {}};
    const auto add = [&](const char *how, const T &value) {
        const unsigned char *bytes = reinterpret_cast<const unsigned char *>(&value);
        field.values.push_back({how, {bytes, bytes + sizeof value}});
    };
    if (usual) {
        for (const auto &bad : bad_values<T>()) {
            add(bad.how, bad.value);
        }
        if constexpr (std::is_same_v<T, unsigned> || std::is_same_v<T, int>) {
            add("zero", 0);
        }
    }
    if constexpr (!std::is_class_v<T>) {
        for (const auto &[how, number] : numbers) {
            add(how, (T)number);
        }
    }
    return field;
}

// Members of the structure `it`: with the bad values of the type, with more, and with no others.
#define BAD_INPUT_FIELD(member, usual, ...) \
    bad_input::field(#member, (size_t)((char *)&it.member - (char *)&it), it.member, usual, {__VA_ARGS__})
#define F(member) BAD_INPUT_FIELD(member, true, )
#define FV(member, ...) BAD_INPUT_FIELD(member, true, __VA_ARGS__)
#define ONLY(member, ...) BAD_INPUT_FIELD(member, false, __VA_ARGS__)

inline void spoil(const std::string &name, const void *good, size_t size, const Fields &fields, int (*call)(void *)) {
    functions++;
    const unsigned char *bytes = static_cast<const unsigned char *>(good);
    const std::vector<unsigned char> structure(bytes, bytes + size);
    std::set<std::string> lines;
    const auto add = [&](const std::string &line, std::vector<unsigned char> it) {
        // A member may have the same bad value for two reasons.
        if (lines.insert(line).second) {
            cases.push_back({line, [=]() mutable { return call(it.data()); }, takes(name), functions});
        }
    };
    add(name, structure);
    for (const Field &field : fields) {
        for (const auto &[how, value] : field.values) {
            std::vector<unsigned char> spoilt = structure;
            std::memcpy(spoilt.data() + field.offset, value.data(), value.size());
            add(name + " ." + field.name + " " + how, std::move(spoilt));
        }
    }
}

// The structure is `it` of type `It`, here and in the call; its fields are `fields`.
#define SPOIL(name, ...)                                                      \
    bad_input::spoil(name, &it, sizeof it, fields, [](void *place) {          \
        [[maybe_unused]] auto &it = *static_cast<It *>(place);                \
        return static_cast<int>(__VA_ARGS__);                                 \
    })

// `SPOIL_CALL(function, " group", arguments)`.
#define SPOIL_CALL(function, group, ...) SPOIL(BAD_INPUT_TEXT(function) group, CALL(function, __VA_ARGS__))

// A single call.
inline void line(const char *name, int (*call)()) {
    functions++;
    cases.push_back({name, call, takes(name), functions});
}
#define LINE(name, ...) bad_input::line(name, [] { return static_cast<int>(__VA_ARGS__); })

// `LINE_CALL(function, " how", arguments)`.
#define LINE_CALL(function, how, ...) LINE(BAD_INPUT_TEXT(function) how, CALL(function, __VA_ARGS__))

// Addresses of each kind; the set-up of a program fills them.
inline std::vector<std::pair<const char *, unsigned long long>> addresses;

// A call with an address of each kind.
inline void with_addresses(const std::string &name, int (*call)(unsigned long long)) {
    functions++;
    for (const auto &[kind, address] : addresses) {
        const unsigned long long value = address;
        cases.push_back({name + " " + kind, [=] { return call(value); }, takes(name), functions});
    }
}
// The call has the address `at`.
#define ADDRESSES(name, ...) \
    bad_input::with_addresses(name, [](unsigned long long at) { return static_cast<int>(__VA_ARGS__); })
#define ADDRESSES_CALL(function, how, ...) ADDRESSES(BAD_INPUT_TEXT(function) how, CALL(function, __VA_ARGS__))

}  // namespace bad_input
