/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TIERSCOPE_FAULTS_H
#define TIERSCOPE_FAULTS_H

/* locks.c */
void fault_lock_order(void);
void fault_sleep(void);
void fault_schedule(void);
void fault_race(void);

/* memory.c */
void fault_use_after_free(void);
void fault_leak(void);
void fault_bad_page(void);
void fault_freed_twice(void);
void fault_shift(void);
void fault_null(void);
void fault_wild(void);

/* tables.c */
void fault_bad_pmd(void);
void fault_double_map(void);
void fault_rss(void);
void fault_pgtables(void);

/* stalls.c */
void fault_stall(void);
void fault_irqs_off(void);
void fault_reader(void);
void fault_hung(void);

#endif
