/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that tierscope is built for. No other file
 * of the module knows a kernel version or the name of a kernel option.
 */
#ifndef TIERSCOPE_COMPAT_H
#define TIERSCOPE_COMPAT_H

#include <linux/kconfig.h>
#include <linux/version.h>

#ifndef CONFIG_X86_64
#error "tierscope knows the page tables of x86-64 only"
#endif

/* v6.1 is the oldest kernel of lab/kernels.toml: older ones were never tried. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "tierscope needs Linux 6.1 or later"
#endif

/*
 * ea4654e08853 ("x86/bugs: Rename CONFIG_PAGE_TABLE_ISOLATION =>
 * CONFIG_MITIGATION_PAGE_TABLE_ISOLATION"), v6.9
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
#define TS_PTI_BUILT	IS_ENABLED(CONFIG_MITIGATION_PAGE_TABLE_ISOLATION)
#else
#define TS_PTI_BUILT	IS_ENABLED(CONFIG_PAGE_TABLE_ISOLATION)
#endif

#if !TS_PTI_BUILT
#include <linux/pgtable.h>
#define X86_CR3_PTI_PCID_USER_BIT	11
static inline pgd_t *kernel_to_user_pgdp(pgd_t *pgdp)
{
	return pgdp;
}
#endif

/* Without CONFIG_PAGE_IDLE_FLAG folio_set_young() does nothing: Debian's 6.1 */
#define TS_HANDBACK	IS_ENABLED(CONFIG_PAGE_IDLE_FLAG)

#endif /* TIERSCOPE_COMPAT_H */
