# SPDX-License-Identifier: GPL-2.0
# Included by the Makefile of each module of the lab; as kmod/Makefile, which must work alone:
# KDIR=... BUILD=... C=1
KDIR ?= /lib/modules/$(shell uname -r)/build
BUILD ?= $(CURDIR)
export TIERSCOPE_WERROR ?= y

SOURCES := Kbuild $(wildcard *.c *.h)

modules: $(BUILD)/Kbuild
	$(MAKE) -C $(KDIR) M=$(abspath $(BUILD)) modules

clean: $(BUILD)/Kbuild
	$(MAKE) -C $(KDIR) M=$(abspath $(BUILD)) clean

ifneq ($(abspath $(BUILD)),$(CURDIR))
$(BUILD)/Kbuild: $(SOURCES)
	mkdir -p $(BUILD)
	cp -pu $(SOURCES) $(BUILD)
	touch $@
endif

.PHONY: modules clean
