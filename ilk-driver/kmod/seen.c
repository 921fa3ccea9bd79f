// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * What others can see of a session: a list of the splices in debugfs, a line in the log at an
 * owner's first install and at its end, and the taint of a kernel whose text was replaced.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "ilk.h"

static struct dentry *ilk_folder;
static bool ilk_announced;	/* of the current owner */

/* A position in the list is an address without the bits that all text has in common. */
#define ILK_TEXT_BASE (-1ul << 31)

static void *ilk_list_from(loff_t *position)
{
	struct ilk_site *site = ilk_site_from(ILK_TEXT_BASE + *position);

	if (site)
		*position = site->addr - ILK_TEXT_BASE;
	return site;
}

static void *ilk_list_start(struct seq_file *file, loff_t *position)
{
	int err = mutex_lock_killable(&ilk_mutex);

	return err ? ERR_PTR(err) : ilk_list_from(position);
}

static void *ilk_list_next(struct seq_file *file, void *site, loff_t *position)
{
	++*position;
	return ilk_list_from(position);
}

static void ilk_list_stop(struct seq_file *file, void *site)
{
	if (!IS_ERR(site))
		mutex_unlock(&ilk_mutex);
}

/* Address, kind, bytes overwritten, place, patch; then a note where the text is not as installed. */
static int ilk_list_show(struct seq_file *file, void *entry)
{
	static const char *const kinds[ILK_KINDS] = {
		[ILK_JUMP] = "jump", [ILK_SHORT] = "short", [ILK_BOUNCE] = "bounce",
		[ILK_TRAP] = "trap", [ILK_TRACER] = "tracer", [ILK_CALL] = "call",
	};
	const struct ilk_site *site = entry;

	seq_printf(file, "%px %-6s %2u %pS -> %px%s\n", (void *)site->addr, kinds[site->kind],
		   site->len + (u32)hweight64(site->filled), (void *)site->addr, (void *)site->target,
		   site->out ? " [REMOVED]" : "");
	return 0;
}

static const struct seq_operations ilk_list_sops = {
	.start = ilk_list_start,
	.next = ilk_list_next,
	.stop = ilk_list_stop,
	.show = ilk_list_show,
};
DEFINE_SEQ_ATTRIBUTE(ilk_list);

/* Without debugfs there is no list, and nothing else changes. */
void ilk_seen_init(void)
{
	ilk_folder = debugfs_create_dir("ilk", NULL);
	debugfs_create_file("splices", 0400, ilk_folder, NULL, &ilk_list_fops);
}

void ilk_seen_exit(void)
{
	debugfs_remove(ilk_folder);
}

/* Called when a batch that installs was checked, before its first write. */
void ilk_seen_install(void)
{
	lockdep_assert_held(&ilk_mutex);
	if (ilk_announced)
		return;
	ilk_announced = true;
	add_taint(TAINT_LIVEPATCH, LOCKDEP_STILL_OK);
	pr_info("%s (process %d) instruments this kernel: see ilk/splices in debugfs\n",
		current->comm, task_tgid_nr(current));
}

/* Called when an owner's splices are removed, or stuck. */
void ilk_seen_end(void)
{
	lockdep_assert_held(&ilk_mutex);
	if (!ilk_announced || ilk_site_from(0))
		return;
	ilk_announced = false;
	pr_info("the last splice is removed\n");
}
