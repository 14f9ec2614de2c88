// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of the driver against a backend that answers echo calls (README.md, "Self test").
 *
 *	driver_test NAME...	runs the named tests
 *	driver_test		runs those that need nobody's help
 */
#include <stdio.h>

#include "driver_test.h"

int failures;

static const struct test tests[] = {
	{ "info", info, 1 }, { "echo", echo, 1 }, { "arguments", arguments, 1 }, { "bulk", bulk, 1 },
	{ "scattered", scattered, 1 }, { "file_mappings", file_mappings, 1 }, { "threads", threads, 1 },
	{ "quota", quota, 1 }, { "keep", keep, 1 }, { "keep_to_read", keep_to_read, 1 }, { "track", track, 1 },
	{ "pin_quota", pin_quota, 1 },
	{ "shared_area", shared_area, 1 }, { "events", events, 1 }, { "replies", replies, 1 },
	{ "signals", signals, 1 }, { "killed", killed, 1 }, { "forked", forked, 1 },
	{ "many_files", many_files, 1 }, { "latency", latency, 1 }, { "full_rings", full_rings, 0 },
	{ "huge_pages", huge_pages, 0 }, { "stress", stress, 0 },
	{ "namespaces", namespaces, 0 }, { "user_sessions", user_sessions, 0 },
	{ "subordinate_users", subordinate_users, 0 },
	{ "user_rings", user_rings, 0 }, { "user_pins", user_pins, 0 }, { "strict", strict, 0 },
	{ "statistics", statistics, 0 }, { "unanswered_area", unanswered_area, 0 },
	{ "lost", lost, 0 }, { "reopen", reopen, 0 }, { "nodevice", nodevice, 0 }, { "die", die, 0 },
	{ "broken", broken, 0 }, { NULL, NULL, 0 },
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run_tests(tests, argc, argv);
}
