/** Java: objects on the heap, direct buffers outside it, then a wait. */
public class Hold {
    public static void main(String[] arguments) throws Exception {
        java.util.ArrayList<Object> kept = new java.util.ArrayList<>();
        for (int i = 0; i < 500000; i++)
            kept.add("value " + i);
        for (int i = 0; i < 16; i++)
            kept.add(java.nio.ByteBuffer.allocateDirect(1 << 20));
        System.out.println("ready");
        Thread.sleep(600000);
        System.out.println(kept.size());
    }
}
