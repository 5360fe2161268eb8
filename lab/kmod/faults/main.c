// SPDX-License-Identifier: GPL-2.0
/*
 * Lab only: commit one fault while being loaded, so that the judge of consoles
 * can be seen to notice it: insmod tierscope_faults.ko fault=NAME (EINVAL: there
 * is no such fault).
 */
#include <linux/bug.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/panic.h>
#include <linux/string.h>
#include <asm/msr.h>

#include "faults.h"

static char *fault = "";
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "what goes wrong");

static void fault_warn(void)
{
	WARN(1, "deliberate\n");
}

static void fault_panic(void)
{
	panic("deliberate");
}

static void fault_breakpoint(void)
{
	asm volatile("int3");
}

/* IA32_PKRS holds 32 bits: more of them are refused. */
static void fault_msr(void)
{
	wrmsr(0x6e1, ~0, ~0);
}

static const struct {
	const char *name;
	void (*commit)(void);
} faults[] = {
	{ "warn", fault_warn },
	{ "freed-twice", fault_freed_twice },
	{ "panic", fault_panic },
	{ "breakpoint", fault_breakpoint },
	{ "msr", fault_msr },
	{ "lock-order", fault_lock_order },
	{ "sleep", fault_sleep },
	{ "schedule", fault_schedule },
	{ "race", fault_race },
	{ "use-after-free", fault_use_after_free },
	{ "leak", fault_leak },
	{ "bad-page", fault_bad_page },
	{ "shift", fault_shift },
	{ "null", fault_null },
	{ "wild", fault_wild },
	{ "bad-pmd", fault_bad_pmd },
	{ "double-map", fault_double_map },
	{ "rss", fault_rss },
	{ "pgtables", fault_pgtables },
	{ "stall", fault_stall },
	{ "irqs-off", fault_irqs_off },
	{ "reader", fault_reader },
	{ "hung", fault_hung },
};

static int __init faults_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		if (strcmp(fault, faults[i].name) == 0) {
			faults[i].commit();
			return 0;
		}
	}
	return -EINVAL;
}

static void __exit faults_exit(void)
{
}

module_init(faults_init);
module_exit(faults_exit);

MODULE_DESCRIPTION("Lab only: commit one fault");
MODULE_AUTHOR("The tierscope developers");
MODULE_LICENSE("GPL");
