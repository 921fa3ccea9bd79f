// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The kernel's own mechanisms for the purposes of ilk.ko, with minimal handlers, for comparative
 * measurements. For the lab only.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "rivals.h"

#define RIVALS_MAX (1u << 20)

struct rivals_probe {
	struct kprobe kp;
	u64 hits;
};

static struct rivals_probe *probes;
static struct kprobe **placed;
static u32 placed_count;
static struct kretprobe on_return;
static bool traced, returning;

static int notrace rivals_nothing(struct kprobe *kp, struct pt_regs *regs)
{
	return 0;
}

static int notrace rivals_count(struct kprobe *kp, struct pt_regs *regs)
{
	container_of(kp, struct rivals_probe, kp)->hits++;
	return 0;
}

static int notrace rivals_returned(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return 0;
}

static void notrace rivals_traced(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
				  struct ftrace_regs *regs)
{
}

static struct ftrace_ops tracer = { .func = rivals_traced };

static void rivals_remove(struct rivals_request *request)
{
	request->hits = 0;
	if (placed_count)
		unregister_kprobes(placed, placed_count);
	for (u32 i = 0; i < placed_count; i++)
		request->hits += container_of(placed[i], struct rivals_probe, kp)->hits;
	request->registered = placed_count;
	kvfree(placed);
	kvfree(probes);
	placed = NULL;
	probes = NULL;
	placed_count = 0;
	if (returning)
		unregister_kretprobe(&on_return);
	if (traced) {
		unregister_ftrace_function(&tracer);
		ftrace_free_filter(&tracer);
	}
	returning = false;
	traced = false;
}

static int rivals_kprobes(struct rivals_request *request, const u64 *addresses)
{
	probes = kvcalloc(request->count, sizeof(*probes), GFP_KERNEL);
	placed = kvcalloc(request->count, sizeof(*placed), GFP_KERNEL);
	if (!probes || !placed)
		return -ENOMEM;
	for (u32 i = 0; i < request->count; i++) {
		struct kprobe *kp = &probes[i].kp;

		kp->addr = (kprobe_opcode_t *)(unsigned long)addresses[i];
		kp->pre_handler = request->kind == RIVALS_KPROBE_COUNT ? rivals_count : rivals_nothing;
		if (register_kprobe(kp))
			request->refused++;
		else
			placed[placed_count++] = kp;
		cond_resched();
	}
	request->registered = placed_count;
	return 0;
}

static int rivals_place(struct rivals_request *request)
{
	u64 *addresses;
	int err;

	if (probes || returning || traced)
		return -EBUSY;
	if (!request->count || request->count > RIVALS_MAX)
		return -EINVAL;
	addresses = kvcalloc(request->count, sizeof(*addresses), GFP_KERNEL);
	if (!addresses)
		return -ENOMEM;
	err = -EFAULT;
	if (copy_from_user(addresses, u64_to_user_ptr(request->addresses),
			   request->count * sizeof(*addresses)))
		goto out;
	switch (request->kind) {
	case RIVALS_KPROBE:
	case RIVALS_KPROBE_COUNT:
		err = rivals_kprobes(request, addresses);
		break;
	case RIVALS_KRETPROBE:
		memset(&on_return, 0, sizeof(on_return));
		on_return.kp.addr = (kprobe_opcode_t *)(unsigned long)addresses[0];
		on_return.handler = rivals_returned;
		err = register_kretprobe(&on_return);
		returning = !err;
		break;
	case RIVALS_FTRACE:
		err = ftrace_set_filter_ip(&tracer, addresses[0], 0, 1);
		if (!err)
			err = register_ftrace_function(&tracer);
		traced = !err;
		break;
	default:
		err = -EINVAL;
	}
out:
	kvfree(addresses);
	return err;
}

static long rivals_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct rivals_request request;
	u64 begin;
	long err = 0;

	if (copy_from_user(&request, (void __user *)argument, sizeof(request)))
		return -EFAULT;
	request.registered = 0;
	request.refused = 0;
	begin = ktime_get_ns();
	if (command == RIVALS_PLACE)
		err = rivals_place(&request);
	else if (command == RIVALS_REMOVE)
		rivals_remove(&request);
	else
		return -ENOTTY;
	request.nanoseconds = ktime_get_ns() - begin;
	if (copy_to_user((void __user *)argument, &request, sizeof(request)))
		return -EFAULT;
	return err;
}

static int rivals_release(struct inode *inode, struct file *file)
{
	struct rivals_request ignored;

	rivals_remove(&ignored);
	return 0;
}

static const struct file_operations rivals_operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = rivals_ioctl,
	.release = rivals_release,
};

/* The program uses it exclusively: nothing here is reentrant outside the lab. */
static struct miscdevice rivals_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "rivals",
	.fops = &rivals_operations,
	.mode = 0600,
};

module_misc_device(rivals_device);
MODULE_DESCRIPTION("the kernel's own probes, for measurements compared with ilk");
MODULE_LICENSE("GPL");
