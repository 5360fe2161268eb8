/** A heap of which most is kept and not used: a hot part is read and written, and garbage is made. */
public class Load {
    public static void main(String[] args) {
        byte[][] cold = fill(240);
        byte[][] hot = fill(32);
        System.out.println("ready");
        long sum = cold.length;
        while (true) {
            for (byte[] block : hot) {
                for (int at = 0; at < block.length; at += 256) {
                    sum += block[at]++;
                }
            }
            // Young garbage, 64 KiB a round.
            Object[] garbage = new Object[64];
            for (int i = 0; i < garbage.length; i++) {
                garbage[i] = new byte[1000];
            }
            sum += garbage.length;
            if (sum == Long.MIN_VALUE) {
                System.out.println(sum);
            }
        }
    }

    /** Blocks of 64 KiB: smaller than G1's humongous objects. */
    private static byte[][] fill(int mebibytes) {
        byte[][] blocks = new byte[mebibytes * 16][];
        for (int i = 0; i < blocks.length; i++) {
            blocks[i] = new byte[65536 - 16];
            java.util.Arrays.fill(blocks[i], (byte) i);
        }
        return blocks;
    }
}
