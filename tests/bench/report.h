/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "tests/bench/schedule.h"

/* Print the table of one placement on standard output. */
void bench_report_print(const struct bench_placement *placement,
			const struct bench_results *results);

#endif
